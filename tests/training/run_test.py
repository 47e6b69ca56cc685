"""Which score is better, and the steps at which something is due, against counting."""

import functools
import itertools
import math
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.phases import Phase
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.task import Task
from bert_jax.training.run import BestScore, EventSchedule
from configs import tiny
from tests.micro import write_rows

LONG, SHORT = ({"input_ids": (8, size)} for size in (32, 16))


@pytest.fixture
def make(tmp_path):
    def history(*phases, lines=()):
        rows = [{"step": at, "split": "dev", "time": 0, "q": q} for at, q in lines]
        write_rows(tmp_path / "metrics.jsonl", rows)
        task = mock.create_autospec(Task, instance=True)
        ends = list(itertools.accumulate(steps for steps, _ in phases))
        task.phases.return_value = [
            Phase(end - steps, end, 0, 0, 0, 1, shapes)
            for end, (steps, shapes) in zip(ends, phases, strict=True)
        ]
        task.phase_at.side_effect = functools.partial(Task.phase_at, task)
        task.selection_value.side_effect = lambda numbers: numbers["q"]
        return BestScore(task, tmp_path, ("dev",))

    return history


def adds(history, *values):
    return [history.add(at, {"q": value}) for at, value in values]


def test_better_than_all_before_of_the_same_length(make):
    history = make((20, SHORT), (20, LONG))
    values = [(10, 3.0), (20, 2.0), (21, 1.0), (30, 0.5), (40, 1.5)]
    assert adds(history, *values) == [True, False, True, False, True]


def test_run_that_is_resumed_knows_what_it_knew(make):
    lines = [(10, 3.0), (20, 2.0), (30, 1.0)]
    history = make((20, SHORT), (20, LONG), lines=lines)
    assert adds(history, (35, 0.5), (40, 2.0)) == [False, True]
    history = make((40, SHORT), lines=lines)
    assert adds(history, (40, 2.9)) == [False]


def test_evaluations_without_a_gain_are_counted_in_each_phase(make):
    history = make((20, SHORT), (20, LONG))
    found = []
    for at, value in [(10, 3.0), (20, 2.0), (25, 1.0), (30, 1.0), (35, 0.5)]:
        history.add(at, {"q": value})
        found.append(history.should_stop(2))
    assert found == [False, False, False, False, True]
    assert not history.should_stop(0) and not history.should_stop(3)
    said = "early stop at step 35: 2 evaluations no better than step 25's"
    assert history.early_stop(35, 25) == f"{said}; the result is that of step 25"


def test_nan_is_never_the_best(make):
    """`selection_value` makes it the worst: neither at first, where every later score
    was no better, nor afterwards."""
    history = make((90, SHORT))
    values = [(10, -math.inf), (20, 1.0), (30, -math.inf), (40, 2.0)]
    assert adds(history, *values) == [True, True, False, True]
    assert not history.should_stop(1)
    assert adds(history, (50, -math.inf), (60, -math.inf)) == [False, False]
    assert history.should_stop(2) and not history.should_stop(3)
    assert "no better than step 40's" in history.early_stop(60, 60)


@pytest.mark.parametrize(
    ("score", "given", "expected"),
    [
        ("", {"loss": 2.0, "accuracy": 0.5}, -2.0),
        ("", {"loss": math.nan, "accuracy": 0.5}, -math.inf),
        ("accuracy", {"loss": 2.0, "accuracy": 0.5}, 0.5),
        ("perplexity", {"loss": 2.0, "perplexity": 7.0}, -7.0),
        ("f1:loss", {"loss": 2.0, "f1:loss": 0.7}, 0.7),  # for a class of that name
        ("accuracy", {"loss": 2.0, "accuracy": math.nan}, -math.inf),
    ],
)
def test_best_checkpoint_maximizes_its_score(score, given, expected):
    config = tiny.get_config("plain")
    config.evaluate.score = score
    assert Pretraining(config).selection_value(given) == expected


counts = st.integers(1, 40)


def make_schedule(num_steps, log, save, evaluate, rows, epoch):
    config = tiny.get_config("plain")
    config.train.update(num_steps=num_steps, log_every=log, eval_every=evaluate)
    config.train.update(batch_size=rows, eval_every_epoch=bool(epoch))
    config.checkpoint.save_every = save
    return EventSchedule(config, epoch)


@given(counts, counts, counts, st.integers(0, 40), counts, st.integers(0, 200))
def test_due_steps(num_steps, log, save, evaluate, rows, epoch):
    due = make_schedule(num_steps, log, save, evaluate, rows, epoch)
    seen = 0
    for step in range(1, num_steps + 1):
        epochs_end = any((seen + row + 1) % epoch == 0 for row in range(rows) if epoch)
        seen += rows
        last = step == num_steps
        at = bool(evaluate) and step in range(0, num_steps, evaluate)
        logs, saves = (last or step in range(0, num_steps, n) for n in (log, save))
        evaluates = last or at or epochs_end
        assert due.should_log(step) == logs and due.should_save(step) == saves
        assert due.should_evaluate(step) == evaluates
        assert due.any_event(step) == (logs or saves or evaluates)


def test_due_evaluations_begin_with_the_first_step():
    assert not make_schedule(10, 1, 1, 1, 8, 8).should_evaluate(0)
    assert make_schedule(0, 1, 1, 0, 8, 0).should_evaluate(0)
