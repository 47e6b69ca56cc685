"""Plans a run's steps so that it ends in the time of `config.train.budget`.

The pace is measured once, before the run begins, on a state of its own
(pace.py). The plan is a number of steps: with it and the seed the run is as
exact as one whose steps were given. It is kept in config.json, and how it was made in
budget.json.
"""

import json
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.budget import pace
from bert_jax.budget.pace import Pace
from bert_jax.config import durations
from bert_jax.config.phases import phase2_start
from bert_jax.errors import UserError
from bert_jax.runtime import processes, untrusted
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks.task import Task
from bert_jax.workdir import folder as workdir

log = logging.getLogger(__name__)

FILE = "budget.json"
LEAST = 10  # steps of a run
RESERVE = 0.02  # of the budget, for what is not measured
_MEASURED = 0.02  # of the budget, of each phase, within these seconds:
_SHORTEST, _LONGEST = 1.0, 15.0
_MANY = 10_000_000  # steps, while they are not yet planned


def plan_steps(task: Task, folder: Path) -> None:
    """Sets `config.train.num_steps` of a task with a `config.train.budget`.

    A run that has begun keeps its plan. All processes call it together.

    Args:
      task: its config is resolved.
      folder: the work directory.

    Raises:
      UserError: the run in the folder has another budget; the budget is too small, or
        other fields already say how long the run is.
      Interrupted: a signal arrived.
    """
    config = task.config
    budget = config.train.budget
    _check(config)
    if workdir.has_config(folder):
        if config.train.extend:
            raise UserError(
                "config.train.extend=True: not with config.train.budget, whose plan "
                "stays; leave the budget out and set --config.train.num_steps"
            )
        config.train.num_steps = _kept(folder, budget)
        return
    allowed = durations.seconds(budget)
    config.train.num_steps = _MANY
    with processes.first_alone():
        task.training_data()
    began = time.perf_counter()
    share = min(max(_MEASURED * allowed, _SHORTEST), _LONGEST)
    log.info("config.train.budget=%s: measuring the pace", budget)
    measured = pace.measure(task, folder, share, allowed)
    spent = time.perf_counter() - began
    if processes.is_first():
        plan = planned(config, measured, allowed, spent)
        write_atomically(folder / FILE, json.dumps(plan, indent=2) + "\n")
    processes.barrier()
    plan = untrusted.read_object(folder / FILE)
    config.train.num_steps = plan["num_steps"]
    log.info("%s", in_one_line(plan))


def planned(
    config: ConfigDict, measured: Pace, budget: float, spent: float
) -> dict[str, Any]:
    """The largest number of steps that end in time.

    Args:
      config: the whole config; its `train.num_steps` does not matter.
      measured: the pace.
      budget: seconds, from when the data is prepared.
      spent: seconds of the budget that are gone.

    Returns:
      What budget.json has: the plan, and what it was made from.

    Raises:
      UserError: there is no time for the fewest steps.
    """
    left = budget * (1 - RESERVE) - spent
    fewest = _fewest(config)
    least = seconds(config, measured, fewest)
    if least > left:
        needed = math.ceil((least + spent) / (1 - RESERVE))
        steps = ", ".join(f"{each:.3g} s" for each in measured.steps)
        rest = least - _stepping(config, measured, fewest)
        raise UserError(
            f"config.train.budget={config.train.budget}: too little: a step takes "
            f"{steps}, measuring took {spent:.1f} s, and compiling, the last "
            f"evaluation and checkpoint {rest:.1f} s more; {fewest} steps need about "
            f"{needed}s"
        )
    low, high = fewest, _MANY
    while low < high:  # the largest that fits
        middle = (low + high + 1) // 2
        if seconds(config, measured, middle) <= left:
            low = middle
        else:
            high = middle - 1
    return {
        "budget": config.train.budget,
        "num_steps": low,
        "expected_seconds": spent + seconds(config, measured, low),
        "measuring_seconds": spent,
        "pace": measured._asdict(),
        "devices": jax.device_count(),
    }


def _fewest(config: ConfigDict) -> int:
    """Steps of a run whose second phase has time for its warm-up."""
    second = config.phase2
    if not second.fraction or not second.warmup_steps:
        return LEAST
    return max(LEAST, math.ceil((second.warmup_steps + 1) / second.fraction))


def seconds(config: ConfigDict, measured: Pace, num_steps: int) -> float:
    """What a run of so many steps takes: compiling, steps, evaluations, checkpoints."""
    every = config.train.eval_every
    evaluations = 1 + ((num_steps - 1) // every if every else 0)
    checkpoints = 1 + (num_steps - 1) // config.checkpoint.save_every
    return (
        measured.compiling
        + _stepping(config, measured, num_steps)
        + evaluations * measured.evaluation
        + checkpoints * measured.checkpoint
    )


def in_one_line(plan: Mapping[str, Any]) -> str:
    """The plan in a line."""
    pace = " then ".join(f"{each:.3g}" for each in plan["pace"]["steps"])
    return (
        f"config.train.budget={plan['budget']}: planned {plan['num_steps']:,} steps of "
        f"{pace} s; with compiling, evaluation and checkpoints "
        f"{plan['expected_seconds']:,.0f} s from when the data was ready"
    )


def _stepping(config: ConfigDict, measured: Pace, num_steps: int) -> float:
    copy = config.copy_and_resolve_references()
    copy.train.num_steps = num_steps
    change = phase2_start(copy)
    counts = (change, num_steps - change)
    # Where the second phase has no steps, only the first was measured.
    return sum(n * each for n, each in zip(counts, measured.steps, strict=False))


def _check(config: ConfigDict) -> None:
    """Raises UserError if another field says how long the run is, or needs to know."""
    budget, train, optimizer = config.train.budget, config.train, config.optimizer
    if train.num_epochs:
        raise UserError(
            f"config.train.budget={budget}: plans the steps of pre-training, and "
            f"config.train.num_epochs={train.num_epochs} counts epochs; leave one out"
        )
    if optimizer.warmup_steps:
        raise UserError(
            f"config.optimizer.warmup_steps={optimizer.warmup_steps}: how many steps "
            f"config.train.budget={budget} gives is not known yet; set "
            "--config.optimizer.warmup_steps=0 and a share of them, such as "
            "--config.optimizer.warmup_fraction=0.1"
        )


def _kept(folder: Path, budget: str) -> int:
    """The steps that a run has planned.

    Raises:
      UserError: it has another budget, or none.
    """
    recorded = workdir.read_config(folder)["train"]
    planned_for, steps = recorded.get("budget", ""), recorded.get("num_steps")
    same = planned_for and durations.seconds(planned_for) == durations.seconds(budget)
    if same and isinstance(steps, int):
        return steps
    raise UserError(
        f"--workdir={folder} belongs to a run of another config: train.budget "
        f"({planned_for!r} there, {budget!r} now), and its {steps} steps stay; leave "
        f"the budget out and set --config.train.num_steps={steps}, or use another "
        "--workdir"
    )
