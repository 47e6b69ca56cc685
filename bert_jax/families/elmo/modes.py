"""The modes of an ELMo as functions, whose arguments are those of `bert_jax.modes`."""

import functools
from collections.abc import Mapping

from ml_collections import ConfigDict

from bert_jax import modes
from bert_jax import train as training
from bert_jax.config import configuration, files
from bert_jax.families.elmo import extractor, fields, loading
from bert_jax.families.elmo.pretraining import Elmo
from bert_jax.families.elmo.step import CarriedStep
from bert_jax.modes import NO_FIELDS, Fields
from bert_jax.runtime import storage

fields.register()


def build(config: ConfigDict, folder: storage.Path, *, from_data: bool) -> Elmo:
    """Builds the task, as `setup.build_task`."""
    del folder, from_data
    task = Elmo(config)
    task.resolve()
    return task


prepare = functools.partial(modes.prepare, build=build)
evaluate = functools.partial(modes.evaluate, build=build)


def train(
    config: ConfigDict | None,
    workdir: str,
    values: Fields = NO_FIELDS,
    code: Mapping[str, bytes] | None = None,
) -> int:
    """Prepares the text, trains or resumes, evaluates. Returns the step whose weights
    are the run's result."""
    task = modes.make_task(config, workdir, values, trains=True, build=build)
    return training.train(task, storage.storage_path(workdir), code, CarriedStep)


def extract(workdir: str, source: str, target: str, values: Fields = NO_FIELDS) -> None:
    """Writes vectors of words, see `extractor.extract`."""
    modes.check_output("extract", target, input=source)
    folder = storage.storage_path(workdir)
    if loading.is_run(folder):
        config = modes.make_config(None, workdir, values, is_inference=True)
    else:
        config = files.load_file("elmo")
        config.task.word_ends = "punctuation"  # as the released weights read
        configuration.override_and_check(config, "elmo", values)
    extractor.extract(folder, config, source, target)


def export(workdir: str, target: str) -> None:
    """Writes the released form of a run, see `loading.export`."""
    modes.check_output("export", target)
    loading.export(storage.storage_path(workdir), target)
    print(f"exported: {target}")
