"""By which config a run, or weights, are asked: by their own.

`predict`, `evaluate` and `export` do what the run would have done itself, so its task,
lengths, labels and choice of checkpoint come from what it has recorded. Of the command
line counts what it names, `--config.FIELD=VALUE`, and only where it may differ.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import configuration, fields
from bert_jax.config.command_line import CommandLine
from bert_jax.config.configuration import field_of
from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import has_checkpoint

log = logging.getLogger(__name__)

# The fields of the data that are evaluated, and of all that a task reads.
EVALUATED = ("task.data_dir", "task.dev_file", "task.test_file")
DATA = (*EVALUATED, "task.train_file")
# What names a place, besides the fields of a task that are text.
PLACES = ("corpus.data_dir", "init_from", "tokenizer.vocab_file")
VARIABLES = ("JAX_COMPILATION_CACHE_DIR", "TFDS_DATA_DIR")
# Where and with what a model is asked. What it is, is not among them.
MAY_DIFFER = (
    *("mesh.", "predict.", "evaluate.", "corpus.data_dir", *DATA),
    *("model.dtype", "model.attention", "model.remat"),
)


def config(
    folder: Path, given: ConfigDict | None, overrides: Sequence[str], *, asks: bool
) -> ConfigDict:
    """The config of a mode that works on the run in `folder`, or begins one there.

    Args:
      given: of the command line's `--config` and its overrides, if there is one.
      overrides: the command line's `--config.FIELD=VALUE`.
      asks: nothing is trained.

    Raises:
      UserError: no config is named; and see `of_run`.
    """
    if asks and has_checkpoint(folder):
        return of_run(folder, given, overrides)
    if given is not None:
        return of_weights(given, overrides) if asks else given
    if workdir.has_config(folder):
        return again(folder, overrides)
    return without_config(overrides, asks)


def of_run(
    folder: Path, given: ConfigDict | None, overrides: Sequence[str]
) -> ConfigDict:
    """The config of the run in `folder`, with the overrides that it may have.

    Args:
      given: of the command line's `--config`, whose task must be the run's.
      overrides: the command line's `--config.FIELD=VALUE`.

    Raises:
      UserError: another task; a field that the run decides; a run of several seeds.
    """
    config = _recorded(folder)
    name = config.task.name
    if given is not None and given.task.name != name:
        raise UserError(
            f"--workdir={folder}: a run of the task {name!r}, but --config is of "
            f"{given.task.name!r}; leave --config out, or name another --workdir"
        )
    if config.train.seeds > 1:
        raise UserError(
            f"--workdir={folder}: a run of {config.train.seeds} seeds; name one of "
            f"them, such as --workdir={folder / f'seed_{config.seed}'}"
        )
    config.mesh = configuration.defaults().mesh  # of this machine, not of the run's
    for override in overrides:
        field, before, after = configuration.override(config, override)
        if before == after or field.startswith("mesh."):
            continue
        if not field.startswith(MAY_DIFFER):
            raise UserError(
                f"--config.{field}={after}: the run in {folder} has {before!r}, which "
                "decides how it is asked; leave this flag out"
            )
        log.info("config.%s=%r, where the run has %r", field, after, before)
    fields.check(config)
    return config


def again(folder: Path, overrides: Sequence[str]) -> ConfigDict:
    """The config of the run in `folder`, to go on with it."""
    config = _recorded(folder)
    for override in overrides:
        configuration.override(config, override)
    fields.check(config)
    return config


def without_config(overrides: Sequence[str], asks: bool) -> ConfigDict:
    """The config where neither --config nor a run names one: that of the weights to be
    asked, or that of pre-training.

    Raises:
      UserError: something is to be trained; no `--config.init_from` is there.
    """
    first = [x for x in overrides if field_of(x) == "init_from"]
    if not (asks and first):
        raise UserError(
            "--config=FILE is required once, such as --config=configs/base.py, or the "
            "--workdir=DIR of a run"
        )
    config = configuration.defaults()
    for override in first:
        configuration.override(config, override)
    own = weights.recorded(config.init_from)
    config.model.update(weights.read_shape(config.init_from))
    if own is not None:
        recorded = configuration.complete(own, config.init_from)
        recorded.init_from, recorded.mesh = config.init_from, config.mesh
        recorded.tokenizer = config.tokenizer
        config = recorded
    for override in overrides:
        configuration.override(config, override)
    fields.check(config)
    return config


def check_places(line: CommandLine, config: ConfigDict) -> None:
    """Raises UserError where a place is of a kind that cannot be used there."""
    if line.mode == "export" and "://" in line.output:
        raise UserError(
            f"--output={line.output}: an export is a folder of this machine; write it "
            "here and copy it"
        )
    places = [(f"--{n}", getattr(line, n)) for n in ("workdir", "input", "output")]
    places += [
        (f"--config.{name}", value)
        for name, value in fields.each(config)
        if name in PLACES or (name.startswith("task.") and isinstance(value, str))
    ]
    places += [(name, os.environ.get(name, "")) for name in VARIABLES]
    for source in config.corpus.sources:
        places.append(("--config.corpus.sources", source.partition(":")[2]))
    for flag, place in places:
        if place not in ("", "-"):
            storage.check(flag, place.removeprefix("tfds:"))


def source(folder: Path, config: ConfigDict) -> Path:
    """The weights to be exported where `folder` holds no run.

    Raises:
      UserError: there is no `init_from` either.
    """
    if not config.init_from:
        raise nothing_to_ask(folder)
    return storage.path(config.init_from)


def nothing_to_ask(folder: Path) -> UserError:
    return UserError(
        f"--workdir={folder}: no checkpoint there; train one first, or name weights "
        "with --config.init_from"
    )


def of_weights(config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """The config with the model of the weights of `init_from`, and the fields of the
    task as they were trained with, where they say so and are of the same task.

    Args:
      overrides: these fields stay as the command line has them.
    """
    if not config.init_from:
        return config
    named = {field_of(override) for override in overrides}
    asked = config.copy_and_resolve_references()
    for name, value in weights.read_shape(config.init_from).items():
        if f"model.{name}" not in named:
            asked.model[name] = value
    own = weights.recorded(config.init_from)
    if own is None:
        return asked
    recorded = configuration.complete(own, config.init_from)
    if "evaluate.checkpoint" not in named:
        asked.evaluate.checkpoint = recorded.evaluate.checkpoint
    if own["task"].get("name") != config.task.name:
        return asked
    for name in own["task"]:
        field, value = f"task.{name}", recorded.task[name]
        if field in DATA or name not in asked.task or asked.task[name] == value:
            continue
        if field in named:
            log.info(
                "config.%s=%r, where the weights were trained with %r",
                *(field, asked.task[name], value),
            )
        else:
            asked.task[name] = value
    return asked


def beside(folder: Path, config: ConfigDict) -> str:
    """Where in `predictions` answers go that are not those of the run in `folder`: ""
    for its own data and checkpoint, else a name."""
    own = _recorded(folder)
    for field in EVALUATED:
        ours, theirs = (_place(c.task.get(field.split(".")[1])) for c in (config, own))
        if ours != theirs:
            return os.path.basename(ours or "").partition(".")[0] or "other"
    name = config.evaluate.checkpoint
    return "" if name == own.evaluate.checkpoint else name


def _recorded(folder: Path) -> ConfigDict:
    """What the run in `folder` was trained with."""
    return configuration.complete(workdir.read_config(folder), folder / "config.json")


def _place(value: Any) -> str | None:
    """A file's full name, so that ./dev.json is dev.json."""
    if not value or ":" in value:  # none, tfds:NAME, gs://BUCKET
        return value or None
    return os.path.abspath(value)
