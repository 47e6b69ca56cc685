"""The list of slow tests, and how it is measured."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import durations

ROOT = Path(__file__).resolve().parents[1]


def test_every_slow_test_exists():
    for file, tests in durations.read().items():
        text = (ROOT / file).read_text()
        assert [test for test in tests if f"def {test}(" not in text] == []


def test_what_is_measured_replaces_what_was_known(tmp_path, monkeypatch):
    file = tmp_path / "durations.json"
    file.write_text('{"a": {"fast": 2.0, "skipped": 3.0}, "b": {"left_out": 1.0}}')
    monkeypatch.setattr(durations, "FILE", file)
    recorder = durations.Recorder()

    def report(nodeid, when, duration, skipped=False):
        recorder.pytest_runtest_logreport(
            SimpleNamespace(
                nodeid=nodeid, when=when, duration=duration, skipped=skipped
            )
        )

    report("a::fast", "setup", 0.2)
    report("a::fast", "call", 0.2)
    report("a::skipped", "setup", 0.1, skipped=True)
    report("a::slow[1]", "setup", 0.4)
    report("a::slow[1]", "call", 0.4)
    report("a::slow[2]", "call", 0.25)
    recorder.pytest_sessionfinish()
    assert json.loads(file.read_text()) == {
        "a": {"skipped": 3.0, "slow": pytest.approx(1.05, abs=0.06)},
        "b": {"left_out": 1.0},
    }
    items = [SimpleNamespace(nodeid=name) for name in ("c::x", "b::y", "a::z", "c::w")]
    durations.sort(items)
    assert [item.nodeid for item in items] == ["a::z", "b::y", "c::x", "c::w"]
    items = [SimpleNamespace(nodeid=name) for name in ("a::slow[2]", "b::slow")]
    assert [item.nodeid for item in durations.slow(items)] == ["a::slow[2]"]
