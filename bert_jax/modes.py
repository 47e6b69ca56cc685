"""The modes: functions of a config and a work directory, for the command line and for
Python.

Each takes these arguments:

  config: The config. None means that of the run in the work directory or, without a
    run, of the weights that `fields` names as init_from.
  workdir: The work directory. It may be a bucket's.
  fields: Values by field. They win over the file's. A run or weights may refuse
    others than their own (`run_config.config_of`).

All raise UserError for a problem that the user can fix.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from bert_jax import describe as description
from bert_jax import evaluate as evaluation
from bert_jax import export as exporting
from bert_jax import extract as extraction
from bert_jax import predict as prediction
from bert_jax import train as training
from bert_jax.errors import UserError
from bert_jax.runtime import environment, processes, storage
from bert_jax.tasks.task import Task
from bert_jax.training import run_config, setup
from bert_jax.workdir import folder as workdirs

log = logging.getLogger(__name__)

Fields = Mapping[str, Any]
Build = Callable[..., Task]  # as `setup.build_task`
NO_FIELDS: Fields = MappingProxyType({})


def train(
    config: ConfigDict | None,
    workdir: str,
    fields: Fields = NO_FIELDS,
    code: Mapping[str, bytes] | None = None,
) -> int:
    """Prepares the data, trains or resumes, evaluates, predicts.

    Args:
      code: Result of `files.read_code`, of which a run keeps a copy.

    Returns:
      The step whose weights are the run's result.
    """
    task = make_task(config, workdir, fields, trains=True)
    return training.train(task, storage.storage_path(workdir), code)


def prepare(
    config: ConfigDict | None,
    workdir: str,
    fields: Fields = NO_FIELDS,
    build: Build = setup.build_task,
) -> None:
    """Prepares the data of pre-training, and prints its folders."""
    task = make_task(
        config, workdir, fields, trains=True, needs_devices=False, build=build
    )
    with processes.wait_for_first():
        data = task.training_data()
    if processes.is_first():
        for folder in data.folders:
            print(data.report(storage.storage_path(folder)), file=sys.stderr)
            print(f"prepared: {folder}")


def evaluate(
    config: ConfigDict | None,
    workdir: str,
    fields: Fields = NO_FIELDS,
    build: Build = setup.build_task,
) -> None:
    """Scores the newest checkpoint, or weights, on the evaluation splits."""
    task = make_task(config, workdir, fields, trains=False, build=build)
    evaluation.evaluate(task, storage.storage_path(workdir))


def predict(
    config: ConfigDict | None,
    workdir: str,
    source: str,
    target: str,
    fields: Fields = NO_FIELDS,
) -> None:
    """Answers the rows of a file, see `predict.predict`."""
    _check_paths(input=source, output=target)
    task = make_task(config, workdir, fields, trains=False)
    prediction.predict(task, storage.storage_path(workdir), source, target)


def serve(
    config: ConfigDict | None,
    workdir: str,
    host: str,
    port: int,
    fields: Fields = NO_FIELDS,
) -> None:
    """Answers over HTTP, see `serving.server.serve`."""
    from bert_jax.serving import server  # of an extra

    task = make_task(config, workdir, fields, trains=False)
    server.serve(task, storage.storage_path(workdir), host, port)


def extract(
    config: ConfigDict | None,
    workdir: str,
    source: str,
    target: str,
    fields: Fields = NO_FIELDS,
) -> None:
    """Writes vectors of the model's layers, see `extract.extract`."""
    check_output("extract", target, input=source)
    task = make_task(config, workdir, fields, trains=False)
    extraction.extract(task, storage.storage_path(workdir), source, target)


def export(
    config: ConfigDict | None,
    workdir: str,
    target: str,
    fields: Fields = NO_FIELDS,
    onnx: str = "",
) -> None:
    """Writes a Hugging Face model folder, see `export.export`."""
    check_output("export", target)
    config = make_config(config, workdir, fields, is_inference=True)
    exporting.export(storage.storage_path(workdir), config, target, onnx)


def describe(
    config: ConfigDict | None, workdir: str, target: str, fields: Fields = NO_FIELDS
) -> None:
    """Shows the config, parameters, FLOPs and memory, and runs nothing."""
    _check_paths(output=target)
    # Without a config and a run it is that of the weights that `fields` names.
    is_run = workdirs.has_config(storage.storage_path(workdir))
    trains = config is not None or is_run or bool(fields.get("train.branch_from"))
    task = make_task(config, workdir, fields, trains=trains)
    description.describe(task, target)


def warn_of_changed_code(workdir: str, code: Mapping[str, bytes]) -> None:
    """Prints which files of a custom config have changed since the run began.

    Args:
      code: Result of `files.read_code`.
    """
    folder = storage.storage_path(workdir)
    if warning := workdirs.changed_code_warning(folder, code, may_add=True):
        log.warning(warning)


def make_config(
    config: ConfigDict | None,
    workdir: str,
    fields: Fields,
    *,
    is_inference: bool,
    needs_devices: bool = True,
) -> ConfigDict:
    """Returns the config that holds."""
    if not processes.is_first():
        logging.getLogger("bert_jax").setLevel(logging.ERROR)
    if needs_devices:
        environment.require_devices()
    _check_paths(workdir=workdir)
    folder = storage.storage_path(workdir)
    config = run_config.config_of(folder, config, fields, is_inference=is_inference)
    storage.check_path("--config.corpus.data_dir", config.corpus.data_dir)
    environment.collect_garbage()
    return config


def make_task(
    config: ConfigDict | None,
    workdir: str,
    fields: Fields,
    *,
    trains: bool,
    needs_devices: bool = True,
    build: Build = setup.build_task,
) -> Task:
    """Returns the task of the config that holds, the same in all processes."""
    config = make_config(
        config, workdir, fields, is_inference=not trains, needs_devices=needs_devices
    )
    environment.keep_programs()
    task = build(config, storage.storage_path(workdir), from_data=trains)
    processes.check_same("the config", workdirs.agreed_fields(task.config))
    return task


def check_output(mode: str, target: str, **paths: str) -> None:
    """Raises UserError if the output is not on this machine, or for a path of a kind
    that its flag cannot use."""
    if "://" in target:
        raise UserError(
            f"--output={target}: {mode} writes only to a local folder; name one and "
            "copy it"
        )
    _check_paths(output=target, **paths)


def _check_paths(**paths: str) -> None:
    """Raises UserError for a path of a kind that its flag cannot use."""
    for flag, path in paths.items():
        storage.check_path(f"--{flag}", path)
