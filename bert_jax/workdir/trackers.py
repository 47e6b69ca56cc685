"""Sends metrics to Weights & Biases and MLflow, in addition to metrics.jsonl.

Both read their own variables: WANDB_PROJECT, MLFLOW_TRACKING_URI, ...
"""

import importlib.util
import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import Path, in_bucket, write_atomically

log = logging.getLogger(__name__)

_PROJECT = {"wandb": "WANDB_PROJECT", "mlflow": "MLFLOW_EXPERIMENT_NAME"}


def require_package(names: Sequence[str]) -> None:
    """Raises UserError if a service's package is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"config.train.trackers: pip install '.[{name}]'")


# The name of a service's run, and functions to send a step and to end the run.
_Run: TypeAlias = tuple[str, Callable[..., Any], Callable[..., Any]]


def _wandb(folder: Path, config: dict[str, Any], name: str | None) -> _Run:
    import wandb

    run = wandb.init(
        id=name,
        name=folder.name,
        config=config,
        dir=None if in_bucket(folder) else str(folder),
        resume="allow",
        settings=wandb.Settings(console="off", silent=True),
    )
    # A service's own counter would refuse the steps that a resumed run repeats.
    run.define_metric("*", step_metric="step")
    return (
        run.id,
        lambda step, numbers: run.log({"step": step, **numbers}),
        lambda finished: run.finish(exit_code=int(not finished)),
    )


def _mlflow(folder: Path, config: dict[str, Any], name: str | None) -> _Run:
    import mlflow

    run = mlflow.start_run(run_id=name, run_name=folder.name, nested=True)
    mlflow.log_params(config if name is None else {})

    def write(step: int, numbers: Mapping[str, float]) -> None:
        # A class may have any name, in `f1:CLASS`.
        named = {re.sub(r"[^\w.\-:/ ]", "_", key): x for key, x in numbers.items()}
        mlflow.log_metrics(named, step=step, run_id=run.info.run_id)

    ends = {True: "FINISHED", False: "KILLED"}
    return run.info.run_id, write, lambda finished: mlflow.end_run(ends[finished])


class Trackers:
    """The services that `config.train.trackers` names.

    A resumed run continues the same run of a service, whose name is in `folder`'s
    trackers.json. A service that fails is reported once and left out from then on.
    """

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, Any]):
        self._open: dict[str, _Run] = {}
        path = folder / "trackers.json"
        runs = untrusted.read_optional(path) if names else {}
        for name in names:
            os.environ.setdefault(_PROJECT[name], "bert_jax")
            start = {"wandb": _wandb, "mlflow": _mlflow}[name]
            if opened := self._try(name, start, folder, {**config}, runs.get(name)):
                self._open[name], runs[name] = opened, opened[0]
        if self._open:
            write_atomically(path, json.dumps(runs) + "\n")

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Sends numbers as `split/name`. Leaves out those that are not finite."""
        numbers = {
            f"{split}/{n}": float(x) for n, x in values.items() if math.isfinite(x)
        }
        for name, run in list(self._open.items()):
            self._try(name, run[1], step, numbers)

    def close(self, finished: bool) -> None:
        """Ends the runs. `finished` is False if the run was interrupted."""
        for name, run in list(self._open.items()):
            self._try(name, run[2], finished)

    def _try(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # a service's outage must not end the training
            self._open.pop(name, None)
            why = f"{type(error).__name__}: {first_line(error)}"
            log.warning("warning: %s is left out from here on: %s", name, why)
