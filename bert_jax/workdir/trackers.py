"""Sends metrics to Weights & Biases and MLflow, beside metrics.jsonl.

Each reads its own environment variables: WANDB_PROJECT, WANDB_MODE=offline, ...;
MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ...
"""

import functools
import importlib.util
import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path, in_bucket, write_atomically

log = logging.getLogger(__name__)

_PROJECT = "bert_jax"
_FILE = "trackers.json"  # each service's name of the run


class Tracker(NamedTuple):
    """An open run at a service."""

    run: str  # the service's name of it
    write: Callable[[int, Mapping[str, float]], None]  # a step, numbers by name
    close: Callable[[bool], None]  # whether it has finished


def require(names: Sequence[str]) -> None:
    """Raises UserError if a service's package is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"config.train.trackers: {name} is not installed; pip install "
                f"'.[{name}]'"
            )


class Trackers:
    """The services that `config.train.trackers` names.

    A run that resumes goes on in the same run of a service; steps that it repeats are
    there twice. A service that fails is reported once and left out from then on:
    metrics.jsonl has every number.

    Args:
      names: of the services.
      folder: the work directory.
      config: the run's fields by name, for the service to show.
    """

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, Any]):
        self._open: dict[str, Tracker] = {}
        path = folder / _FILE
        runs = _known(path) if names and path.exists() else {}
        for name in names:
            opened = self._try(
                name, functools.partial(_OPEN[name], folder, config, runs)
            )
            if opened is not None:
                self._open[name], runs[name] = opened, opened.run
        if self._open:
            write_atomically(path, json.dumps(runs) + "\n")

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Sends numbers as `split/name`; leaves out those that are not finite."""
        numbers = {
            f"{split}/{name}": float(value)
            for name, value in values.items()
            if math.isfinite(value)
        }
        for name, tracker in list(self._open.items()):
            self._try(name, functools.partial(tracker.write, step, numbers))

    def close(self, finished: bool) -> None:
        """Ends the runs.

        Args:
          finished: False if the run was interrupted.
        """
        for name, tracker in list(self._open.items()):
            self._try(name, functools.partial(tracker.close, finished))
        self._open = {}

    def _try(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # a service's outage must not end the training
            self._open.pop(name, None)
            log.warning(
                "warning: %s is left out from here on: %s: %.200s",
                *(name, type(error).__name__, " ".join(str(error).split())),
            )
            return None


def _known(path: Path) -> dict[str, str]:
    """Each service's name of the run.

    Raises:
      UserError: the file is damaged.
    """
    try:
        runs = json.loads(path.read_text())
    except ValueError:
        runs = None
    if not isinstance(runs, dict) or not all(isinstance(v, str) for v in runs.values()):
        raise UserError(
            f"{path}: not what a run writes; remove it, and the services get a new run"
        )
    return runs


def _open_wandb(
    folder: Path, config: Mapping[str, Any], runs: Mapping[str, str]
) -> Tracker:
    import wandb

    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        id=runs.get("wandb"),
        name=folder.name,
        config=dict(config),
        dir=None if in_bucket(folder) else str(folder),
        resume="allow",
        settings=wandb.Settings(console="off", silent=True),
    )
    # A service's own counter would refuse the steps that a resumed run repeats.
    run.define_metric("*", step_metric="step")
    return Tracker(
        run.id,
        lambda step, numbers: run.log({"step": step, **numbers}),
        lambda finished: run.finish(exit_code=0 if finished else 1),
    )


def _open_mlflow(
    folder: Path, config: Mapping[str, Any], runs: Mapping[str, str]
) -> Tracker:
    import mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient()
    run = runs.get("mlflow")
    if run is None:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = mlflow.set_experiment(name).experiment_id
        run = client.create_run(experiment, run_name=folder.name).info.run_id
        params = [Param(key, str(value)[:500]) for key, value in config.items()]
        for first in range(0, len(params), 100):  # the most that it takes at a time
            client.log_batch(run, params=params[first : first + 100])
    else:
        client.update_run(run, status="RUNNING")

    def write(step: int, numbers: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            # A class may have any name, in `f1:CLASS`, and there may be many.
            Metric(re.sub(r"[^\w.\-:/ ]", "_", name), value, now, step)
            for name, value in numbers.items()
        ]
        for first in range(0, len(metrics), 1000):
            client.log_batch(run, metrics=metrics[first : first + 1000])

    return Tracker(
        run,
        write,
        lambda finished: client.set_terminated(
            run, "FINISHED" if finished else "KILLED"
        ),
    )


_OPEN: dict[str, Callable[..., Tracker]] = {
    "wandb": _open_wandb,
    "mlflow": _open_mlflow,
}
