"""Hyperparameter search beyond a grid, by Optuna's tree-structured Parzen estimator.

The sampler is seeded and sees the scores of all earlier trials. So the same command
repeats the trials that have ended, without training them again, and continues.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.tasks.task import lower_is_better
from experiments.lib import command_line, runner
from experiments.lib.runner import Run
from experiments.sweeps import compare, sweep


def main(options: argparse.Namespace, fields: Sequence[str]) -> int:
    """Runs `options.trials` trials, prints the report and returns the exit status."""
    command_line.require("optuna", "search", "--trials needs Optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    runs, status = dict[Run, str](), 0
    for number in range(1, options.trials + 1):
        trial = study.ask()
        grid = {f: _suggest(trial, f, values) for f, values in options.grid.items()}
        of_trial = sweep.plan(options, fields, grid)
        runs |= of_trial
        if options.plan and not all(run.is_done for run in of_trial):
            return runner.finish([*runs], options, str)
        title = f"trial {number} of {options.trials}: {[*of_trial.values()][-1]}"
        ended = runner.finish([*of_trial], options, lambda _: title)  # noqa: B023
        status = max(status, ended)
        if ended > 128:  # stopped by a signal
            break
        # Optuna notes a trial without a finite score as failed.
        study.tell(trial, math.nan if ended else _loss(of_trial, options.score))
    print(sweep.write_report(options, runs))
    return status


def _suggest(trial: Any, field: str, values: Sequence[str]) -> list[str]:
    """Returns the trial's value of a field, or all seeds."""
    if field == sweep.SEED:
        return [*values]
    if not (ends := sweep.range_of(values)):
        return [trial.suggest_categorical(field, values)]
    low, high = map(float, ends)
    is_log = 0 < low <= high / 10
    if all(end.isdecimal() for end in ends):
        return [str(trial.suggest_int(field, int(low), int(high), log=is_log))]
    return [f"{trial.suggest_float(field, low, high, log=is_log):.3g}"]


def _loss(runs: Mapping[Run, str], asked: str) -> float:
    """Returns the mean score of a trial's runs, negative if higher is better."""
    (setting,), score = compare.settings(((name, x) for x, name in runs.items()), asked)
    return setting.mean if lower_is_better(score) else -setting.mean
