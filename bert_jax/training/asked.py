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
from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import KERNELS
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import has_checkpoint

log = logging.getLogger(__name__)

# The fields that name evaluation data, and all data that a task reads.
EVALUATED = ("task.data_dir", "task.dev_file", "task.test_file")
DATA = (*EVALUATED, "task.train_file")
# Fields that name a file or folder, besides the string fields of a task.
PLACES = ("corpus.data_dir", "init_from", "tokenizer.vocab_file", "predict.attentions")
VARIABLES = ("JAX_COMPILATION_CACHE_DIR", "TFDS_DATA_DIR")
# Fields that say where and how a model runs; none changes the model.
MAY_DIFFER = (
    *("mesh.", "predict.", "serve.", "evaluate.", "corpus.data_dir", *DATA),
    *("model.dtype", "model.attention", "model.remat"),
    *("corpus.runner", "corpus.beam_options"),
)


def config(
    folder: Path, given: ConfigDict | None, overrides: Sequence[str], *, asks: bool
) -> ConfigDict:
    """The config of a mode that uses the run in `folder`, or starts one there.

    Args:
      given: the command line's `--config` with its overrides, if any.
      overrides: the command line's `--config.FIELD=VALUE`.
      asks: the mode does not train.

    Raises:
      UserError: no config is named; see also `of_run`.
    """
    if asks and has_checkpoint(folder):
        return of_run(folder, given, overrides)
    if asks:
        check_dropout(overrides)
    if given is not None and asks:
        return of_weights(given, overrides)
    if given is not None:
        return _shaped(folder, given, overrides)
    if workdir.has_config(folder):
        return again(folder, overrides)
    if asks and "init_from" in map(field_of, overrides):
        return without_config(overrides)
    raise UserError(
        "--config=FILE is required once, such as --config=configs/base.py, or the "
        f"--workdir=DIR of a run ({folder} has none)"
    )


def of_run(
    folder: Path, given: ConfigDict | None, overrides: Sequence[str]
) -> ConfigDict:
    """The config of the run in `folder`, with the allowed overrides.

    Args:
      given: the command line's `--config`, whose task must be the run's.
      overrides: the command line's `--config.FIELD=VALUE`.

    Raises:
      UserError: another task; a field that must not differ; a run of several seeds.
    """
    config = _recorded(folder)
    if given is not None and given.task.name != config.task.name:
        raise UserError(
            f"--workdir={folder}: a run of the task {config.task.name!r}, but --config "
            f"has {given.task.name!r}; leave --config out, or name another --workdir"
        )
    if config.train.seeds > 1:
        raise UserError(
            f"--workdir={folder}: a run of {config.train.seeds} seeds; name one of "
            f"them, such as --workdir={folder / f'seed_{config.seed}'}"
        )
    config.mesh = configuration.defaults().mesh  # for this machine, not the run's
    for override in overrides:
        field, before, after = configuration.override(config, override)
        if before == after or field.startswith(("mesh.", "predict.", "serve.")):
            continue
        if field == "task.dev_file" and "dev_fraction" in config.task:
            config.task.dev_fraction = 0.0  # that file is dev now
        if not field.startswith(MAY_DIFFER) or "dropout" in field:
            raise UserError(
                f"--config.{field}={after}: the run in {folder} has {before!r}, and "
                "this mode must use the run's value; leave this flag out"
            )
        log.info("config.%s=%r, but the run has %r", field, after, before)
    fields.check(config)
    return config


def again(folder: Path, overrides: Sequence[str]) -> ConfigDict:
    """The config of the run in `folder`, to resume it."""
    config = _recorded(folder)
    named = {field_of(override) for override in overrides}
    if "train.num_epochs" in named:
        config.train.num_steps = 0  # counted again
    if "train.num_steps" in named:
        config.train.budget = ""  # what it planned no longer counts
    for override in overrides:
        configuration.override(config, override)
    fields.check(config)
    return config


def without_config(overrides: Sequence[str]) -> ConfigDict:
    """The config that the weights of `init_from` record, to ask on any device."""
    config = configuration.defaults()
    for override in overrides:
        if field_of(override) == "init_from":
            configuration.override(config, override)
    own = weights.recorded(config.init_from)
    storage.check("--config.init_from", config.init_from)
    shape = weights.read_shape(config.init_from)
    if shape.get("architecture") == "elmo" and own is None:
        raise weights.only_an_elmo(storage.path(config.init_from))
    config.model.update(shape)
    if config.model.causal:
        config.task.objective = "ltr"
    FAMILIES[config.model.architecture].complete(config)
    # Nothing is prepared or trained: the length only has to fit.
    positions = config.model.max_position_embeddings
    config.corpus.max_seq_length = min(config.corpus.max_seq_length, positions)
    if own is not None:
        recorded = configuration.complete(own, config.init_from)
        recorded.init_from, recorded.mesh = config.init_from, config.mesh
        recorded.model.dtype = config.model.dtype
        if recorded.model.attention in KERNELS:  # other devices may lack it
            recorded.model.attention = config.model.attention
        if recorded.model.architecture != "elmo":  # whose words it says
            recorded.tokenizer = config.tokenizer
        config = recorded
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


def of_weights(config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """The config with the model sizes of the `init_from` weights and, if they recorded
    the same task, the task fields they were trained with; else only what they predict.

    Args:
      overrides: these fields keep the command line's values.
    """
    if not config.init_from:
        return config
    named = {field_of(override) for override in overrides}
    asked = config.copy_and_resolve_references()
    for field, value in _shape(config).items():
        if field not in named:
            asked.update_from_flattened_dict({field: value})
    own = weights.recorded(config.init_from)
    if own is None:
        kind = weights.read_kind(config.init_from)
        if kind and "kind" in asked.task and "task.kind" not in named:
            asked.task.kind = kind
        return asked
    recorded = configuration.complete(own, config.init_from, code=False)
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
                "config.%s=%r, but the weights were trained with %r",
                *(field, asked.task[name], value),
            )
        else:
            asked.task[name] = value
    return asked


def _shaped(folder: Path, config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """The config of a run that trains, with the model sizes of the `init_from` weights.

    Raises:
      UserError: an override contradicts the weights.
    """
    if not config.init_from:
        return config
    resumes = workdir.has_config(folder)  # the weights may be gone
    if resumes:
        recorded = dict(fields.each(_recorded(folder)))
        pretrains = recorded["task.name"] == "elmo"  # its config has a BERT's fields
        there = "elmo" if pretrains else recorded["model.architecture"]
        _check_architecture(config, there)
        shape = {n: recorded[n] for n in weights.decisive(config.model.architecture)}
    else:
        shape = _shape(config)
    named = {field_of(override) for override in overrides}
    shaped, wrong = config.copy_and_resolve_references(), []
    ours = dict(fields.each(config))
    for field, value in shape.items():
        if ours[field] == value:
            continue
        if field in named:
            wrong.append(f"{field}={ours[field]} (there {value})")
        shaped.update_from_flattened_dict({field: value})
    if wrong and not resumes:
        raise UserError(
            f"config.{', '.join(wrong)}: {config.init_from} has other sizes; "
            "leave these flags out"
        )
    return config if resumes and wrong else shaped


def _shape(config: ConfigDict) -> dict[str, Any]:
    """The model sizes of the `init_from` weights, by `GROUP.NAME`."""
    storage.check("--config.init_from", config.init_from)
    shape = weights.read_shape(config.init_from)
    _check_architecture(config, shape.get("architecture", "bert"))
    if config.model.architecture == "elmo":
        return weights.read_elmo_shape(config.init_from)
    return {f"model.{name}": value for name, value in shape.items()}


def _check_architecture(config: ConfigDict, there: str) -> None:
    """Raises UserError if the weights are of another architecture than the config."""
    ours = config.model.architecture
    # A config of ELMo's pre-training starts from no weights, and says so.
    if there != ours and config.task.name != "elmo":
        add, leave = f"add model={there} to", f"leave model={ours} out of"
        hint = leave if there == "bert" else add
        raise UserError(
            f"--config.init_from={config.init_from}: these weights are "
            f"{FAMILIES[there].title}'s, and the config is for {FAMILIES[ours].title}: "
            f"{hint} the arguments of --config"
        )


def beside(folder: Path, config: ConfigDict) -> str:
    """The subfolder of `predictions` for these answers: "" for the run's own data and
    checkpoint, else a name of what differs; files of one name have different ones."""
    own, names = _recorded(folder), []
    for field in EVALUATED:
        ours, theirs = (_place(c.task.get(field.split(".")[1])) for c in (config, own))
        if ours != theirs:
            name = os.path.basename(ours or "").partition(".")[0] or "other"
            names.append(f"{name}-{sha256((ours or '').encode()).hexdigest()[:6]}")
    if config.evaluate.checkpoint != own.evaluate.checkpoint:
        names.append(config.evaluate.checkpoint)
    return "-".join(names)


def _recorded(folder: Path) -> ConfigDict:
    return configuration.complete(workdir.read_config(folder), folder / "config.json")


def _place(value: Any) -> str | None:
    """A file's absolute path, so that ./dev.json equals dev.json."""
    if not value or ":" in value:  # empty, tfds:NAME, gs://BUCKET
        return value or None
    return os.path.abspath(value)
