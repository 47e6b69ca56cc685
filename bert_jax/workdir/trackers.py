"""Sends metrics to Weights & Biases and MLflow, beside metrics.jsonl.

Each reads its own environment variables: WANDB_PROJECT, WANDB_MODE=offline, ...;
MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ...
"""

import importlib.util
import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import Path, in_bucket, write_atomically

log = logging.getLogger(__name__)

_PROJECT = "bert_jax"


def require(names: Sequence[str]) -> None:
    """Raises UserError if a service's package is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"config.train.trackers: {name} is not installed; pip install "
                f"'.[{name}]'"
            )


class _Wandb:
    def __init__(self, folder: Path, config: Mapping[str, Any], name: str | None):
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=name,
            name=folder.name,
            config=dict(config),
            dir=None if in_bucket(folder) else str(folder),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )
        self.name = self._run.id
        # A service's own counter would refuse the steps that a resumed run repeats.
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"step": step, **numbers})

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class _Mlflow:
    def __init__(self, folder: Path, config: Mapping[str, Any], name: str | None):
        import mlflow
        from mlflow.entities import Param

        self._client = mlflow.MlflowClient()
        if name is None:
            project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
            experiment = mlflow.set_experiment(project).experiment_id
            run = self._client.create_run(experiment, run_name=folder.name)
            name = run.info.run_id
            params = [Param(key, str(value)[:500]) for key, value in config.items()]
            for first in range(0, len(params), 100):  # the most that it takes at a time
                self._client.log_batch(name, params=params[first : first + 100])
        else:
            self._client.update_run(name, status="RUNNING")
        self.name = name

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            # A class may have any name, in `f1:CLASS`, and there may be many.
            Metric(re.sub(r"[^\w.\-:/ ]", "_", name), value, now, step)
            for name, value in numbers.items()
        ]
        for first in range(0, len(metrics), 1000):
            batch = metrics[first : first + 1000]
            self._client.log_batch(self.name, metrics=batch)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self.name, "FINISHED" if finished else "KILLED")


_SERVICES: dict[str, type[_Wandb] | type[_Mlflow]] = {
    "wandb": _Wandb,
    "mlflow": _Mlflow,
}


class Trackers:
    """The services that `config.train.trackers` names.

    A run that resumes goes on in the same run of a service; steps that it repeats are
    there twice. A service that fails is reported once and left out from then on:
    metrics.jsonl has every number.

    Args:
      names: of the services.
      folder: the work directory; its trackers.json has each service's name of the run.
      config: the run's fields by name, for the service to show.
    """

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, Any]):
        self._open: dict[str, _Wandb | _Mlflow] = {}
        path = folder / "trackers.json"
        runs = untrusted.read_object(path) if names and path.exists() else {}

        def start(service: str) -> None:
            opened = _SERVICES[service](folder, config, runs.get(service))
            self._open[service], runs[service] = opened, opened.name

        for service in names:
            self._try(service, start, service)
        if self._open:
            write_atomically(path, json.dumps(runs) + "\n")

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Sends numbers as `split/name`; leaves out those that are not finite."""
        numbers = {
            f"{split}/{name}": float(value)
            for name, value in values.items()
            if math.isfinite(value)
        }
        for service, tracker in list(self._open.items()):
            self._try(service, tracker.write, step, numbers)

    def close(self, finished: bool) -> None:
        """Ends the runs; `finished` is False if the run was interrupted."""
        for service, tracker in list(self._open.items()):
            self._try(service, tracker.close, finished)
        self._open = {}

    def _try(self, service: str, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:  # a service's outage must not end the training
            self._open.pop(service, None)
            log.warning(
                "warning: %s is left out from here on: %s: %.200s",
                *(service, type(error).__name__, " ".join(str(error).split())),
            )
