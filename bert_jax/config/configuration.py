"""Loading of configs: from a config file and command-line overrides to a checked
ConfigDict, and from a run's config.json back to one."""

import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from absl import flags
from ml_collections import ConfigDict
from ml_collections.config_flags import tuple_parser

from bert_jax import registry
from bert_jax.config import fields, files
from bert_jax.config.field import INT32, did_you_mean, require_value
from bert_jax.errors import UserError

_PARSERS: dict[type, Any] = {
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: flags.ArgumentParser(),
    tuple: tuple_parser.TupleParser(),
}
_SPLITS = ("train", "dev", "test", "dev_mismatched", "test_mismatched", "ax")


def load_config(spec: str, overrides: Sequence[str]) -> ConfigDict:
    """Loads a config file and applies overrides.

    Args:
      spec: Spec, see `files.load_file`.
      overrides: `--config.FIELD=VALUE` arguments.

    Raises:
      UserError: a file is missing or fails, a field does not exist, or a value is not
        allowed (bert_jax/config/fields.py).
    """
    fields = parse_overrides(overrides)
    return override_and_check(files.load_file(spec), spec, fields)


def override_and_check(
    config: ConfigDict,
    name: str = "config",
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> ConfigDict:
    """Returns the config after these overrides, if it has the right fields.

    Args:
      name: Name of the config, for errors.
      overrides: Values by field.

    Raises:
      UserError: see `load_config`.
    """
    _check_names(config, name)
    for field, value in overrides.items():
        set_field(config, field, value)
    check_config(config)
    return config


def with_defaults(task: str = "pretraining", architecture: Any = "bert") -> ConfigDict:
    """Returns the config with the default of each field that a task requires."""
    return fields.default_config(fields.required_fields(task, architecture))


def complete_config(
    recorded: Mapping[str, Any], where: str | os.PathLike, *, code: bool = True
) -> ConfigDict:
    """Returns the config of a run's config.json.

    Fields newer than the file have their default.

    Args:
      where: The file, for errors.
      code: Whether what a user's config file has defined must be there too.

    Raises:
      UserError: a value is not valid for its field.
    """
    model = recorded.get("model") or {}
    config = with_defaults(recorded["task"].get("name"), model.get("architecture"))
    try:
        config.update({n: _tuples(v) for n, v in recorded.items() if n in config})
        check_config(config, code=code)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return config


def _tuples(value: Any) -> Any:
    """Turns JSON's lists back into tuples."""
    if isinstance(value, Mapping):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _check_names(config: ConfigDict, spec: str) -> None:
    """Raises UserError if a field is missing or unknown.

    A config file adds a field to any group by a `Field`. If a value of the config names
    code that it has added, which may read them, its fields of `task` need none.
    """
    groups = (config.get(group) for group in ("task", "model"))
    task, model = (x if isinstance(x, ConfigDict) else ConfigDict() for x in groups)
    required = fields.required_fields(str(task.get("name")), model.get("architecture"))
    values = dict(fields.iter_fields(config))
    for name in required:
        if name not in values:
            hint = "add it (bert_jax/config/fields.py has its default)"
            raise UserError(f"{spec}: no field config.{name}; {hint}")
    known = required | fields.OWN | fields.family_fields(config)
    is_custom = names_added_code(config)
    for name in sorted(values.keys() - known):
        if not (name.startswith("task.") and is_custom):
            required = fields.default_config(known)
            raise _no_field(required, name, f"{spec}: config.{name}")


def _no_field(config: ConfigDict, path: str, shown: str) -> UserError:
    """Returns the error for a field that the config does not have.

    Args:
      path: GROUP.NAME.
      shown: The field as the user wrote it, after any text before it on the line.
    """
    before = "--config." if shown.startswith("--") else "config."
    names = [*config, *(name for name, _ in fields.iter_fields(config))]
    if meant := did_you_mean(path, names, before):
        return UserError(f"{shown}: no such field{meant}")
    group = config.get(path.partition(".")[0])
    known = group if isinstance(group, ConfigDict) else config
    return UserError(f"{shown}: no such field; there are {', '.join(sorted(known))}")


def names_added_code(config: ConfigDict) -> bool:
    """Returns whether a value of the config is a name that a config file has added."""
    values = (value for _, value in fields.iter_fields(config))
    return any(isinstance(x, str) and x in registry.ADDED for x in values)


def field_of(text: str) -> str:
    """Returns the field in a `--config.FIELD=VALUE`, such as train.num_steps."""
    return text.lstrip("-").partition("=")[0].partition(".")[2]


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Returns the values of these `--config.FIELD=VALUE` by field, as texts. A flag
    without a value is True."""
    values = (text.partition("=")[1:] for text in texts)
    return {
        field_of(text): value if equals else True
        for text, (equals, value) in zip(texts, values, strict=True)
    }


def set_field(config: ConfigDict, path: str, value: Any) -> tuple[Any, Any]:
    """Sets a field to a value of its type, or to one that a text represents.

    Args:
      path: GROUP.NAME.

    Returns:
      The value before and the value now.

    Raises:
      UserError: the field does not exist, or the value has the wrong type.
    """
    *groups, field = path.split(".")
    where: object = config
    for group in groups:
        where = where.get(group) if isinstance(where, ConfigDict) else None
    if not isinstance(where, ConfigDict) or field not in where:
        raise _no_field(config, path, f"--config.{path}")
    before = where[field]
    kind = type(before)
    try:
        where[field] = _as_type(kind, value)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"--config.{path}={value}: config.{path} takes a value of type "
            f"{kind.__name__}"
        ) from error
    return before, where[field]


def _as_type(kind: type, value: Any) -> Any:
    """Returns a value, or what a text represents, as a field's type.

    Raises:
      KeyError, TypeError, ValueError: It has another type.
    """
    if kind is tuple and isinstance(value, list | tuple):
        return tuple(value)
    is_text = isinstance(value, str)
    if value is None or (not is_text and isinstance(value, bool) != (kind is bool)):
        raise TypeError(f"not of type {kind.__name__}")
    return _PARSERS[kind].parse(str(value))


def check_config(config: ConfigDict, *, code: bool = True) -> None:
    """Checks each value by its field, then values that must fit each other.

    Checks that need devices, data or weights are made where these are known.

    Args:
      code: Whether names in registries must be there, which a user's config file may
        have added.

    Raises:
      UserError: a value is not allowed, or not together with another field.
    """
    known = fields.fields_of(config)
    for name, value in fields.iter_fields(config):
        by_name = name in known and isinstance(known[name].allowed, registry.Registry)
        if code or not by_name:
            require_value(known, name, value)
    for is_wrong, text in _conflicts(config):
        if is_wrong:
            raise UserError(f"config.{text}")


def _conflicts(config: ConfigDict) -> Iterator[tuple[object, str]]:
    """Yields whether values of several fields do not fit each other, and the error."""
    masking, train, saved = config.masking, config.train, config.checkpoint
    corpus, task = config.corpus, config.task
    finetunes = "max_seq_length" in task
    yield (
        config.seed + train.seeds - 1 > INT32,
        f"seed={config.seed}: config.train.seeds={train.seeds} uses seeds up to "
        f"{config.seed + train.seeds - 1}; the largest seed is {INT32}",
    )
    yield (
        finetunes and not (train.num_steps or train.num_epochs),
        "train.num_epochs=0.0: set it, or config.train.num_steps, now 0 too",
    )
    yield (
        masking.mask_fraction + masking.random_fraction > 1,
        f"masking.mask_fraction={masking.mask_fraction} and "
        f"random_fraction={masking.random_fraction} add up to more than 1",
    )
    weights = f"corpus.weights={tuple(corpus.weights)}"
    yield (
        corpus.weights and len(corpus.weights) != len(corpus.sources),
        f"{weights}: one for each of the {len(corpus.sources)} config.corpus.sources",
    )
    yield (
        corpus.weights and corpus.packing,
        f"{weights}: not with config.corpus.packing, whose rows have pairs of several "
        "sources",
    )
    yield (
        task.get("bilstm") and config.model.hidden_size % 2,
        f"model.hidden_size={config.model.hidden_size}: must be even for config.task."
        "bilstm=True, which gives each direction a half",
    )
    has_windows = "window_overlap" in task and task.windows > 1
    room = task.get("max_seq_length", 0) - 2  # tokens, without special ones
    yield (
        has_windows and room <= task.window_overlap,
        f"task.window_overlap={task.get('window_overlap')}: must be less than the "
        f"{room} tokens of a window; lower it, or raise config.task.max_seq_length",
    )
    yield (
        has_windows and (task.get("text_b") or task.texts_per_row > 1),
        f"task.windows={task.get('windows')}: only single texts in rows of their own "
        "have windows; leave config.task.text_b and texts_per_row unset",
    )
    cut = task.get("truncation", "head")
    yield (
        cut != "head" and task.get("text_b"),
        f"task.truncation={cut}: is for single texts, and config.task.text_b="
        f"{task.get('text_b')} makes pairs; leave it head",
    )
    yield (
        config.init_layers and not config.init_from,
        f"init_layers={tuple(config.init_layers)}: are those of config.init_from, "
        "which is empty; set that, or model.num_hidden_layers",
    )
    yield (
        task.get("group") and not task.dev_fraction,
        f"task.group={task.get('group')}: says which rows stay together in config.task."
        "dev_fraction=0.0; set that, or leave it out",
    )
    yield (
        corpus.packing and finetunes,
        "corpus.packing=True: packs the rows of pre-training; the rows of "
        f"config.task.name={task.name} are not packed, leave it False",
    )
    yield (
        corpus.full_sentences and (corpus.nsp or corpus.packing or corpus.weights),
        "corpus.full_sentences=True: fills rows with text of any document; set "
        "--config.corpus.nsp=False, and leave packing and weights out",
    )
    yield (
        corpus.shift_positions and not corpus.packing,
        "corpus.shift_positions=True: shifts packed rows; set "
        "--config.corpus.packing=True too",
    )
    yield (
        saved.keep_every % saved.save_every,
        f"checkpoint.keep_every={saved.keep_every}: must be a multiple of "
        f"config.checkpoint.save_every={saved.save_every}, or 0",
    )
    for split in config.evaluate.splits:
        yield (
            split not in _SPLITS and f"{split}_file" not in task,
            f"evaluate.splits={tuple(config.evaluate.splits)}: {split!r} is not one of "
            f"{', '.join(_SPLITS)}, and config.task.{split}_file does not exist",
        )
