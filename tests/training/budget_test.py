"""Steps planned for a time: the arithmetic, and runs that keep their plan."""

import json
import re

import pytest
import runs
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import tasks
from bert_jax.budget import pace
from bert_jax.budget import plan as budget
from bert_jax.budget.pace import Pace
from bert_jax.config import configuration, durations, rules
from bert_jax.config.phases import phase2_start
from bert_jax.errors import UserError
from bert_jax.training import run_config
from bert_jax.workdir import folder


def a_config(**train):
    config = configuration.load("configs/english.py:size=mini,budget=20min", [])
    config.train.update(train)
    config.phase2.fraction, config.phase2.warmup_steps = 0.1, 0
    return config


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20min", 1200), ("1.5h", 5400), ("0.5s", 0.5)]
)
def test_times(text, seconds):
    assert durations.seconds(text) == seconds
    assert rules.duration(text) is None


@pytest.mark.parametrize("text", ["20", "min", "20 min", "-1s", "0h", "1d", "nans"])
def test_what_is_no_time(text):
    assert "20min" in rules.duration(text)


@settings(max_examples=20, deadline=None)
@given(
    steps=st.tuples(st.floats(2, 30), st.floats(2, 30)),
    evaluation=st.floats(0, 10),
    checkpoint=st.floats(0, 5),
    every=st.integers(0, 50),
)
def test_a_plan_is_the_longest_run_in_time(steps, evaluation, checkpoint, every):
    config = a_config(eval_every=every)
    config.checkpoint.save_every = 30
    found = Pace(steps, 12.0, evaluation, checkpoint)
    plan = budget.planned(config, found, 3600.0, 30.0)

    def taken(count):  # as the run itself would spend it, step by step
        total = 30.0 + 12.0 + evaluation + checkpoint
        change = count - round(count * 0.1)
        for step in range(1, count + 1):
            total += steps[step > change]
            total += evaluation * (step < count and every > 0 and step % every == 0)
            total += checkpoint * (step < count and step % 30 == 0)
        return total

    count = plan["num_steps"]
    assert plan["expected_seconds"] == pytest.approx(taken(count))
    assert taken(count) <= 3600 * (1 - budget.RESERVE) + 1e-6
    assert taken(count + 1) > 3600 * (1 - budget.RESERVE) - 1e-6


@pytest.mark.parametrize("fraction", [0.1, 0.15, 0.9])
def test_the_second_phase_has_time_for_its_warmup(fraction):
    config = a_config()
    config.phase2.fraction, config.phase2.warmup_steps = fraction, 50
    found = Pace((1.0, 1.0), 0.0, 0.0, 0.0)
    with pytest.raises(UserError, match=r"too little: .*; \d+ steps need") as caught:
        budget.planned(config, found, 50.0, 0.0)
    needed = durations.seconds(str(caught.value).split()[-1])
    config.train.num_steps = budget.planned(config, found, needed, 0.0)["num_steps"]
    assert 50 < config.train.num_steps - phase2_start(config) <= 52


def test_a_budget_that_is_too_small():
    found = Pace((2.0, 4.0), 10.0, 5.0, 1.0)
    with pytest.raises(
        UserError, match=r"budget=20min: too little: a step takes 2 s, "
    ):
        budget.planned(a_config(), found, 45.0, 8.0)
    needed = (8 + 10 + 5 + 1 + 9 * 2 + 4) / (1 - budget.RESERVE)
    assert budget.planned(a_config(), found, needed, 8.0)["num_steps"] == budget.LEAST


@pytest.fixture
def slow(monkeypatch):
    """The pace is measured, but every machine has the same."""
    measure = pace.measure

    def measured(task, folder, seconds, limit):
        found = measure(task, folder, seconds / 10, limit)
        assert len(found.steps) == 1
        assert all(each > 0 for each in (*found.steps, *found[1:]))
        return Pace((100.0,), 1.0, 1.0, 1.0)

    monkeypatch.setattr(budget.pace, "measure", measured)


@pytest.mark.slow
def test_a_run_in_its_budget(micro, tmp_path, slow):
    run = tmp_path / "run"
    begin = (f"--config={micro}", f"--workdir={run}", "--config.corpus.weights=(1.0,)")
    begin += ("--config.train.budget=30min",)
    _, said = runs.here(*begin)
    plan = json.loads((run / "budget.json").read_text())
    steps = plan["num_steps"]
    assert f"planned {steps:,} steps" in said
    assert re.findall(r"epochs in (\d+) rows", said) == [str(16 * steps)]
    assert f"run: pretraining, {steps:,} steps" in said
    assert plan["expected_seconds"] <= 1800 and 10 <= steps <= 17
    recorded = json.loads((run / "config.json").read_text())["train"]
    assert (recorded["num_steps"], recorded["budget"]) == (steps, "30min")
    assert not list(run.glob(".pace*"))

    # It keeps its plan: again, written otherwise, on another mesh, and with the steps
    # in its place.
    again = (*begin[:3], "--config.train.budget=1800s")
    for more in (begin, (*again, *runs.MESH), (f"--workdir={run}",)):
        _, said = runs.here(*more)
        assert f"resuming at step {steps} of {steps}" in said
        assert "measuring" not in said
    given = (*begin[:3], f"--config.train.num_steps={steps}")
    assert f"resuming at step {steps}" in runs.here(*given)[1]
    _, said = runs.here(*begin[:3], "--config.train.budget=1h", status=2)
    assert "train.budget ('' there, '1h' now)" in said


def test_a_planned_run_gets_longer_when_asked(tmp_path):
    config = a_config(num_steps=16)
    config.phase2.fraction = 0.0
    (tmp_path / "config.json").write_text(config.to_json())
    more = ["--config.train.num_steps=18"]
    with pytest.raises(UserError, match=r"num_steps \(16 there, 18 now\)"):
        folder.check(tmp_path, run_config.to_resume(tmp_path, more))
    extended = run_config.to_resume(tmp_path, [*more, "--config.train.extend=True"])
    assert (extended.train.num_steps, extended.train.budget) == (18, "")
    assert folder.check(tmp_path, extended) == 16
    # The budget itself keeps its plan, and says so.
    extended.train.budget = "20min"
    with pytest.raises(UserError, match="leave the budget out"):
        budget.plan_steps(tasks.create(extended), tmp_path)


@pytest.mark.slow
def test_the_plan_alone_gives_the_run(micro, tmp_path, slow, monkeypatch):
    """What is measured leaves no trace in the numbers."""
    monkeypatch.setattr(budget, "planned", lambda *given: {
        "num_steps": 12, "budget": "1h", "expected_seconds": 1.0,
        "pace": {"steps": [0.1]}})  # fmt: skip
    one, other = tmp_path / "one", tmp_path / "other"
    runs.run(micro, one, "--config.train.budget=1h")
    runs.run(micro, other, "--config.train.num_steps=12")
    assert (runs.losses(one) == runs.losses(other)).all()
    assert len(runs.losses(one)) == 12
