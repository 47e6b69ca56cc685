"""What a run says of the time that is left."""

import io
import sys

import pytest

from bert_jax.runtime import terminal


@pytest.fixture
def clock(monkeypatch):
    """Gives what sets the time, in seconds."""
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])

    def add(seconds):
        now[0] += seconds

    return add


def said(capsys):
    return capsys.readouterr().err.strip().rpartition(", ")[2]


@pytest.mark.parametrize("initial", [0, 40])
def test_compiling_is_not_in_the_time_left(clock, capsys, initial):
    """The first step takes a minute more than the others, of a second."""
    progress = terminal.Progress(100, initial)
    clock(61)
    for step in range(initial + 1, initial + 11):
        progress.update(step)
        clock(1)
    progress.log(initial + 10, {"loss": 1.0})
    # Nine steps in ten seconds: the last update was a second ago.
    left = (100 - initial - 10) * 10 / 9
    assert said(capsys) == f"{int(left) // 60:02}:{int(left) % 60:02} left"
    clock(20)
    progress.update(initial + 20)
    progress.log(initial + 20, {"loss": 1.0})
    left = (100 - initial - 20) * 2
    assert said(capsys) == f"{left // 60:02}:{left % 60:02} left"


def test_a_line_for_each_step_goes_by_the_first_at_first(clock, capsys):
    progress = terminal.Progress(10)
    for step, seconds, left in ((1, 7, "01:03"), (2, 2, "00:16"), (3, 2, "00:14")):
        clock(seconds)
        progress.update(step)
        progress.log(step, {"loss": 1.0})
        assert said(capsys) == f"{left} left"


def test_a_loss_that_is_a_sum_says_of_what(capsys):
    progress = terminal.Progress(10)
    values = {"loss": 7.5, "masked_lm_loss": 6.75, "next_sentence_loss": 0.75}
    progress.log(1, {**values, "grad_norm": 1.0, "usual_loss": 7.25})
    line = capsys.readouterr().err
    named = "loss 7.5000 (masked LM 6.7500 + next sentence 0.7500), step 1/10, "
    assert line.startswith(named)
    progress.log(2, {"loss": 6.75, "masked_lm_loss": 6.75, "usual_loss": 7.0})
    assert capsys.readouterr().err.startswith("loss 6.7500, step 2/10")


def test_compiling_another_length_is_not_in_the_time_left(clock, capsys):
    progress = terminal.Progress(100)
    for step in range(1, 11):
        if step in (1, 4, 7):
            with progress.aside():
                clock(60)
        clock(1)
        progress.update(step)
    progress.log(10, {"loss": 1.0})
    assert said(capsys) == "01:30 left"


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_the_live_line_moves_at_each_step_and_leaves_compiling_out(monkeypatch):
    screen, now = Screen(), [1000.0]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    progress = terminal.Progress(100)
    progress._bar._time = lambda: now[0]
    for step in range(1, 11):
        if step in (1, 4, 7):
            with progress.aside():
                now[0] += 600
        now[0] += 1
        progress.update(step)
        assert f"| {step}/100, " in screen.getvalue()
    # Ninety seconds; tqdm counts the first step as one that took no time.
    assert screen.getvalue().endswith("| 10/100, 01:28 left")
    progress.close()


@pytest.mark.parametrize("total", [1000, None])
def test_rows_their_pace_and_the_time_left(clock, capsys, total):
    """The first rows wait for the compiler, a minute; an earlier attempt had some."""
    progress = terminal.RowProgress(total, done=500)
    for seconds in (60, 2, 2, 28):
        clock(seconds)
        progress.add(10)
    progress.close()
    first, last = capsys.readouterr().err.splitlines()
    if total is None:
        assert (first, last) == ("520 rows, 5 rows/s", "540 rows, 0.6667 rows/s")
    else:
        assert first == "520 of 1,000 rows, 5 rows/s, 01:36 left"
        assert last == "540 of 1,000 rows, 0.6667 rows/s, 11:30 left"
