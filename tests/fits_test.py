"""The table of what fits where; the compiler's answers are made up."""

import json

import pytest

from experiments.capacity import compiled, devices, estimate, fits, plan

SPEC = "configs/base.py"


@pytest.fixture
def compiler(monkeypatch):
    """Eight devices that are here, and a compiler that needs `needed` bytes."""
    asked = []

    def compile_case(case):
        asked.append(case)
        found = {"rows": 256, "length": 128, "mesh": {"data": 8}, "state": 1}
        if len(asked) == 1:
            return {**case, **found, "exhausted": "Ran out of memory"}
        return {**case, **found, "bytes": {"temporaries": 4 * 10**9}}

    monkeypatch.setattr(compiled, "compile_case", compile_case)
    monkeypatch.setattr(plan, "simulate", lambda count: None)
    monkeypatch.setattr(devices, "count", lambda name: 8)
    monkeypatch.setattr(estimate, "needed", lambda *_: 5e9)
    monkeypatch.setattr(fits, "_hours", lambda *_: [1.0, 2.0])
    return asked


def test_where_the_compiler_disagrees_the_next_change_is_taken(compiler, monkeypatch):
    changes = [["--config.train.micro_batches=2"], ["--config.model.remat=full"]]
    monkeypatch.setattr(
        plan, "advice", lambda *_: plan.Advice(False, "does not fit", changes)
    )
    found = fits.measure({"config": SPEC, "device": "v5e:2x4"})["phases"]
    # Both phases with the first change, of which one does not fit; then the second.
    assert [case["phase"] for case in compiler] == [0, 1, 0, 1]
    assert [case["change"] for case in found] == [changes[1]] * 2
    assert all(case["fits"] for case in found)
    line = dict(zip(fits.HEADER, fits.row(found[0]), strict=True))
    assert line["change"] == "model.remat=full" and line["fits"] == "yes"
    assert line["compiler GB"] == "4.00" and line["formulas GB"] == "5.00 (+25.0%)"
    assert line["hours"] == "1 to 2" and line["tokens a step"] == "32,768"
    facts = {"command": "c", "date": "d", "processor": "p", "cores": 2, "load": 0}
    more = {"python": "3", "versions": {"jax": "1"}, "environment": {}}
    page = fits.page({**facts, **more}, found)
    assert page.count("| base.py | v5e:2x4 |") == 2
    assert json.dumps(found)


def test_a_config_that_failed_has_a_line():
    line = fits.row({"config": SPEC, "device": "h100", "error": "no memory"})
    assert len(line) == len(fits.HEADER) and line[2] == "no memory"


@pytest.mark.parametrize("content", [b"\xd3", b"[]", b'{"cases": [', b""])
def test_an_output_that_is_another_s_is_one_line(tmp_path, capsys, content):
    (tmp_path / "fits.json").write_bytes(content)
    assert fits.main([f"--output={tmp_path / 'fits.json'}"]) == 2
    assert "fits.json: not " in capsys.readouterr().err
    assert (tmp_path / "fits.json").read_bytes() == content
