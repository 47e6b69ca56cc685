"""The config with which `predict`, `evaluate` and `export` query a run or weights.

These modes do what the run itself would do, so its task, lengths, labels and choice of
checkpoint come from its recorded config. From the command line they take only
`--config.FIELD=VALUE`, and only for fields that may differ.
"""

import logging
import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import configuration, fields
from bert_jax.config.command_line import CommandLine, check_dropout
from bert_jax.config.configuration import field_of
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import has_checkpoint

log = logging.getLogger(__name__)

# Fields that name a file or folder, besides the string fields of a task.
PLACES = ("corpus.data_dir", "init_from", "tokenizer.vocab_file", "predict.attentions")
VARIABLES = ("JAX_COMPILATION_CACHE_DIR", "TFDS_DATA_DIR")
# Fields that say where and how a model runs; none changes the model.
MAY_DIFFER = (
    *("mesh.", "predict.", "serve.", "evaluate.", "corpus.data_dir", *fields.DATA),
    *("model.dtype", "model.attention", "model.epilogue", "model.remat"),
    "task.words",
    *("corpus.runner", "corpus.beam_options"),
)
# How files are read that the run has not read: these names in full.
COLUMNS = ("task.format", "task.text", "task.text_b", "task.label")


def config_of(
    folder: Path,
    config_argument: ConfigDict | None,
    overrides: Sequence[str],
    *,
    asks: bool,
) -> ConfigDict:
    """The config of a mode that uses the run in `folder`, or starts one there.

    Args:
      config_argument: the command line's `--config` with its overrides, if any.
      overrides: the command line's `--config.FIELD=VALUE`.
      asks: the mode does not train.

    Raises:
      UserError: no config is named; see also `of_run`.
    """
    if asks and has_checkpoint(folder):
        return of_run(folder, config_argument, overrides)
    if asks:
        check_dropout(overrides)
    if config_argument is not None:
        if not config_argument.init_from:
            return config_argument
        from bert_jax.training import from_weights

        if asks:
            return from_weights.of_weights(config_argument, overrides)
        return from_weights.shaped(folder, config_argument, overrides)
    if workdir.has_config(folder):
        return to_resume(folder, overrides)
    if asks and "init_from" in map(field_of, overrides):
        from bert_jax.training import from_weights

        return from_weights.without_config(overrides)
    raise UserError(
        "--config=FILE is required once, such as --config=configs/base.py, or the "
        f"--workdir=DIR of a run ({folder} has none)"
    )


def of_run(
    folder: Path, config_argument: ConfigDict | None, overrides: Sequence[str]
) -> ConfigDict:
    """The config of the run in `folder`, with the allowed overrides.

    Args:
      config_argument: the command line's `--config`, whose task must be the run's.
      overrides: the command line's `--config.FIELD=VALUE`.

    Raises:
      UserError: another task; a field that must not differ; a run of several seeds.
    """
    config = workdir.recorded(folder)
    if config_argument is not None and config_argument.task.name != config.task.name:
        raise UserError(
            f"--workdir={folder}: a run of the task {config.task.name!r}, but --config "
            f"has {config_argument.task.name!r}; leave --config out, or name another "
            "--workdir"
        )
    workdir.require_one_seed(folder, config)
    config.mesh = configuration.defaults().mesh  # for this machine, not the run's
    for override in overrides:
        field, before, after = configuration.override(config, override)
        if before == after or field.startswith(("mesh.", "predict.", "serve.")):
            continue
        if field == "task.dev_file" and "dev_fraction" in config.task:
            config.task.dev_fraction = 0.0  # that file is dev now
        may_differ = field in COLUMNS or field.startswith(MAY_DIFFER)
        if not may_differ or "dropout" in field:
            raise UserError(
                f"--config.{field}={after}: the run in {folder} has {before!r}, and "
                "this mode must use the run's value; leave this flag out"
            )
        log.info("config.%s=%r, but the run has %r", field, after, before)
    fields.check(config)
    return config


def to_resume(folder: Path, overrides: Sequence[str]) -> ConfigDict:
    """The config of the run in `folder`, to resume it."""
    config = workdir.recorded(folder)
    named = {field_of(override) for override in overrides}
    if "train.num_epochs" in named:
        config.train.num_steps = 0  # counted again
    for override in overrides:
        configuration.override(config, override)
    fields.check(config)
    return config


def check_places(line: CommandLine, config: ConfigDict) -> None:
    """Raises UserError if a path is of a kind that its flag or field cannot use."""
    if line.mode in ("export", "extract") and "://" in line.output:
        raise UserError(
            f"--output={line.output}: {line.mode} writes only to a local folder; name "
            "one and copy it"
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
    """The weights to export if `folder` has no run: those of `init_from`.

    Raises:
      UserError: `init_from` is empty.
    """
    if not config.init_from:
        raise nothing_to_ask(folder)
    from bert_jax.runtime import hub

    return hub.path(config.init_from)


def nothing_to_ask(folder: Path) -> UserError:
    hint = "train one first, or name weights with --config.init_from"
    return UserError(f"--workdir={folder}: has no checkpoint; {hint}")


def beside(folder: Path, config: ConfigDict) -> str:
    """The subfolder of `predictions` for these answers: "" for the run's own data and
    checkpoint, else a name of what differs; files of one name have different ones."""
    run, names = workdir.recorded(folder), []
    for field in fields.EVALUATED:
        ours, recorded = (
            _place(c.task.get(field.split(".")[1])) for c in (config, run)
        )
        if ours != recorded:
            name = os.path.basename(ours or "").partition(".")[0] or "other"
            names.append(f"{name}-{sha256((ours or '').encode()).hexdigest()[:6]}")
    if config.evaluate.checkpoint != run.evaluate.checkpoint:
        names.append(config.evaluate.checkpoint)
    return "-".join(names)


def _place(value: Any) -> str | None:
    """A file's absolute path, so that ./dev.json equals dev.json."""
    if not value or ":" in value:  # empty, tfds:NAME, gs://BUCKET
        return value or None
    return os.path.abspath(value)
