"""What a run says of its loss and of the time that is left."""

import io
import sys

import pytest

from bert_jax.runtime import terminal


@pytest.fixture
def clock(monkeypatch):
    """Gives what sets the time, in seconds."""
    now = [100.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])

    def add(seconds):
        now[0] += seconds

    return add


def said(capsys):
    return capsys.readouterr().err.strip().rpartition(", ")[2]


@pytest.mark.parametrize("initial", [0, 40])
def test_compiling_is_not_in_the_time_left(clock, capsys, initial):
    """The compiler takes a minute, and each step a second."""
    progress = terminal.Progress(100, initial)
    clock(60)
    progress.pause()
    for step in range(initial + 1, initial + 11):
        clock(1)
        progress.update(step)
    progress.log(initial + 10, {"loss": 1.0})
    left = 100 - initial - 10
    assert said(capsys) == f"{left // 60:02}:{left % 60:02} left"


def test_a_loss_that_is_a_sum_says_of_what(capsys):
    progress = terminal.Progress(10)
    values = {"loss": 7.5, "masked_lm_loss": 6.75, "next_sentence_loss": 0.75}
    progress.log(1, {**values, "grad_norm": 1.0, "usual_loss": 7.25})
    line = capsys.readouterr().err
    named = "loss 7.5000 (masked LM 6.7500 + next sentence 0.7500), step 1/10, "
    assert line.startswith(named)
    progress.log(2, {"loss": 6.75, "masked_lm_loss": 6.75, "usual_loss": 7.0})
    assert capsys.readouterr().err.startswith("loss 6.7500, step 2/10")


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_the_live_line_is_tqdms(clock, monkeypatch, capsys):
    with terminal.live_line(total=10, unit=" rows") as line:
        line.update(5)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", Screen())
    with terminal.live_line(total=10, unit=" rows") as line:
        clock(1)
        line.update(5)
    assert "5/10" in sys.stderr.getvalue() and "rows/s" in sys.stderr.getvalue()
