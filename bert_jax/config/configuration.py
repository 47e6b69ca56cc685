"""Loading of configs: from a config file and command-line overrides to a checked
ConfigDict, and from a run's config.json back to one."""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from absl import flags
from ml_collections import ConfigDict
from ml_collections.config_flags import tuple_parser

from bert_jax import registry
from bert_jax.config import common_fields, fields, files, phases, task_fields
from bert_jax.config.field import did_you_mean, require_value
from bert_jax.errors import UserError

_PARSERS: dict[type, Any] = {
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: flags.ArgumentParser(),
    tuple: tuple_parser.TupleParser(),
}
_EXAMPLES = {bool: ": True or False", tuple: ", such as \"('a', 'b')\" or \"(1, 2)\""}


def load_config(spec: str, overrides: Sequence[str]) -> ConfigDict:
    """Loads a config file and applies overrides.

    Args:
      spec: Spec, see `files.load_file`.
      overrides: `--config.FIELD=VALUE` arguments.

    Raises:
      UserError: a file is missing or fails, a field does not exist, or a value is not
        allowed (docs/config.md).
    """
    fields = parse_overrides(overrides)
    return override_and_check(files.load_file(spec), spec, fields)


def override_and_check(
    config: ConfigDict,
    name: str = "config",
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> ConfigDict:
    """Returns the config after these overrides, if it has the right fields.

    A config file adds a field to any group by a `Field`. If a value of the config names
    code that it has added, which may read them, its fields of `task` need none.

    Args:
      name: Name of the config, for errors.
      overrides: Values by field.

    Raises:
      UserError: see `load_config`.
    """
    values = dict(fields.iter_fields(config))
    task, family = values.get("task.name"), values.get("model.architecture")
    required = fields.required_fields(str(task), family)
    for field in required:
        if field not in values:
            hint = "add it (docs/config.md has its default)"
            raise UserError(f"{name}: no field config.{field}; {hint}")
    known = required | fields.OWN | fields.family_fields(config)
    is_custom = names_added_code(config)
    for field in sorted(values.keys() - known):
        if not (field.startswith("task.") and is_custom):
            defaults = fields.default_config(known)
            raise _no_field(defaults, field, f"{name}: config.{field}")
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
    try:
        model = recorded.get("model") or {}
        config = with_defaults(recorded["task"].get("name"), model.get("architecture"))
        config.update({name: _tuples(value) for name, value in recorded.items()})
        check_config(config, code=code)
    # A ConfigDict raises these for a value of another type.
    except (UserError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{where}: {' '.join(str(error).split())}") from error
    return config


def _tuples(value: Any) -> Any:
    """Turns JSON's lists back into tuples."""
    if isinstance(value, Mapping):
        return {name: _tuples(item) for name, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


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
    hint = "" if shown.startswith("--") else "; one of your own is a config.field.Field"
    return UserError(
        f"{shown}: no such field; there are {', '.join(sorted(known))}{hint}"
    )


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
        example = _EXAMPLES.get(kind, "")
        raise UserError(
            f"--config.{path}={value}: config.{path} takes a value of type "
            f"{kind.__name__}{example}"
        ) from error
    return before, where[field]


def _as_type(kind: type, value: Any) -> Any:
    """Returns a value, or what a text represents, as a field's type.

    Raises:
      KeyError, TypeError, ValueError: It has another type.
    """
    value = _convert_numpy(value)
    if kind is tuple and isinstance(value, list | tuple):
        return tuple(map(_convert_numpy, value))
    # A column's name may be its number.
    others = {bool: (bool,), int: (int,), float: (int, float), str: (int,)}
    if not isinstance(value, str) and type(value) not in others.get(kind, ()):
        raise TypeError(f"not of type {kind.__name__}")
    return _PARSERS[kind].parse(str(value))


def _convert_numpy(value: Any) -> Any:
    """Returns a path's text, and Python's form of NumPy's numbers, texts and arrays."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value


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
    common_fields.check_together(config)
    task_fields.check_together(config, fields.task_values(config))
    for text, phase_config in phases.check_phases(config):
        try:
            common_fields.check_together(phase_config)
        except UserError as error:
            raise UserError(f"{text}: {error}") from error
