"""The command for a quarter of an hour on a GPU, rehearsed on a processor."""

import json
import shlex

import pytest

from experiments.speed import gpu_suite, train_step
from tests import runs


@pytest.mark.slow
def test_rehearsal_measures_steps_kernels_and_answers(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    runs.one_device_each(monkeypatch)
    given = [f"--output={tmp_path}", "--dry-run", "--only=steps,profile,predict"]
    assert gpu_suite.main(given) == 0, capsys.readouterr().out
    told = capsys.readouterr().out
    assert "\nms a step  kernel" in told and "failed" not in told
    (case,) = json.loads((tmp_path / "steps1.json").read_text())["cases"]
    assert list(case["sides"]) == ["ours, einsum", "torch, sdpa-gathered"]
    assert json.loads((tmp_path / "predict1.json").read_text())["same_label"] > 0.5
    assert (tmp_path / "program.txt").read_text().startswith("HloModule jit_train_step")


@pytest.mark.parametrize("part", ["steps", "profile", "others"])
@pytest.mark.parametrize("tiny", ["", gpu_suite.TINY["others"]])
def test_command_is_one_that_the_program_takes(part, tiny):
    for command in gpu_suite.PARTS[part]:
        _, module, *arguments = shlex.split(command + tiny)
        assert module == train_step.MODULE and train_step.parse_options(arguments)


def test_part_that_fails_does_not_stop_the_next(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(
        gpu_suite.PARTS, "others", ["-m nothing", "-c 'import time; time.sleep(60)'"]
    )
    monkeypatch.setitem(gpu_suite.PARTS, "numbers", ["-c 'print(\"reached\")'"])
    monkeypatch.setitem(gpu_suite.LIMITS, "others", 1.0)
    given = [f"--output={tmp_path}", "--dry-run", "--only=others,numbers"]
    assert gpu_suite.main(given) == 1
    told = capsys.readouterr().out
    assert "status 1\nstopped after 10 s\n" in told and "\nreached\n" in told
    assert told.endswith("failed: others\n")
