"""The thread that says what a run waits for."""

import json
import math
import os
import time

import pytest
from runs import LIMIT

from bert_jax.runtime import heartbeat
from bert_jax.runtime.clock import Stopwatch
from bert_jax.runtime.heartbeat import Heartbeat


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("data wait", "waiting for data"),
        ("step", "waiting for the devices to take a step"),
        ("compile", "waiting for the compiler"),
        ("checkpoint", "waiting for the checkpoint to be written"),
        ("evaluation", "waiting for the devices to evaluate"),
    ],
)
def test_a_stall_is_reported_with_what_is_waited_for(tmp_path, capsys, phase, words):
    clock, err, start = Stopwatch(), "", time.monotonic()

    def says(text):
        nonlocal err
        err += capsys.readouterr().err
        return text in err

    with Heartbeat(tmp_path, clock, 0.1) as heart:
        heart.step = 17
        with clock(phase):
            until(lambda: says(f"at step 17: {words}"))
        until(lambda: says("going on after"))
    # After 0.1 s, 0.2, 0.4 and so on: ever more seldom.
    doublings = math.log2((time.monotonic() - start) / 0.1)
    assert err.count("no progress for") <= max(3, doublings + 1)


def test_the_file_says_whether_and_where_a_run_is(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "SECONDS", 0.02)
    path, clock = tmp_path / "heartbeat.json", Stopwatch()

    def beat():
        return json.loads(path.read_text()) if path.exists() else {"phase": None}

    with Heartbeat(tmp_path, clock, 0) as heart:
        with clock("evaluation"):
            until(lambda: beat()["phase"] == "evaluation")
            first = beat()
            until(lambda: beat()["time"] > first["time"])
            assert beat()["since"] == first["since"] <= first["time"]
        heart.step = 3
    assert beat()["phase"] == "ended" and beat()["step"] == 3
    assert beat()["pid"] == os.getpid()
    assert [file.name for file in tmp_path.iterdir()] == ["heartbeat.json"]
