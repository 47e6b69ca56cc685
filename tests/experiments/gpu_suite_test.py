"""The command for a quarter of an hour on a GPU, rehearsed on a processor."""

import json

import pytest

from experiments.speed import gpu_suite
from tests import runs

pytest.importorskip("torch")


@pytest.mark.slow
def test_rehearsal_measures_steps_and_kernels(tmp_path, capsys, monkeypatch):
    """In turns, and alone."""
    runs.one_device_each(monkeypatch)
    name = "all but the logits"
    monkeypatch.setattr(gpu_suite, "ABLATION", {name: gpu_suite.ABLATION[name]})
    given = [f"--output={tmp_path}", "--dry-run", "--only=ablation,profile"]
    assert gpu_suite.main(given) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "suite.json").read_text())
    steps = found["ablation"]
    assert not steps["errors"]
    assert steps["sides"][name]["median"] > 0
    assert found["profile"]["model_ms"] > 0
    assert (tmp_path / "program.txt.gz").stat().st_size > 1000


def test_part_that_fails_does_not_stop_the_next(tmp_path, capsys, monkeypatch):
    def fail(self):
        raise RuntimeError("the card is gone")

    monkeypatch.setattr(gpu_suite.Suite, "_others", fail)
    monkeypatch.setattr(gpu_suite.Suite, "_numbers", lambda self: {"status": 0})
    given = [f"--output={tmp_path}", "--dry-run", "--only=others,numbers"]
    assert gpu_suite.main(given) == 1
    assert "failed: others" in capsys.readouterr().out
    found = json.loads((tmp_path / "suite.json").read_text())
    assert found["others"]["error"] == "RuntimeError: the card is gone"
    assert found["numbers"]["status"] == 0
