"""Loading of configs: from a config file and command-line overrides to a checked
ConfigDict, and from a run's config.json back to one."""

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from bert_jax import registry
from bert_jax.config import faults, fields, files
from bert_jax.config.check import check, named
from bert_jax.errors import UserError

log = logging.getLogger(__name__)

# Key in config.json: fields, in their groups -> the config file that defined the value.
DEFINED_IN = "defined_in"


def load(spec: str, overrides: Sequence[str]) -> ConfigDict:
    """Loads a config file and applies overrides.

    Args:
      spec: Spec, see `files.load`.
      overrides: `--config.FIELD=VALUE` arguments.

    Raises:
      UserError: a file is missing or fails, a field does not exist, or a value is not
        allowed (bert_jax/config/fields.py).
    """
    return checked(files.load(spec), spec, overrides)


def checked(
    config: ConfigDict, name: str = "config", overrides: Sequence[str] = ()
) -> ConfigDict:
    """Returns the config after these overrides, if it has the right fields.

    Args:
      name: Name of the config, for errors.

    Raises:
      UserError: see `load`.
    """
    try:
        _check_names(config, name)
        for text in overrides:
            override(config, text)
        check(config)
    except RecursionError as error:
        raise UserError(f"{name}: the config contains itself") from error
    return config


def defaults(task: str = "pretraining", architecture: Any = "bert") -> ConfigDict:
    """Returns the config with the default of each field that a task requires."""
    return fields.defaults(fields.required(task, architecture))


def complete(
    recorded: Mapping[str, Any], where: str | os.PathLike, *, code: bool = True
) -> ConfigDict:
    """Returns the config of a run's config.json.

    Fields newer than the file have their default.

    Args:
      where: The file, for errors.
      code: Whether definitions of a user's config file must be there too.

    Raises:
      UserError: a value is not valid for its field, or is from a file not loaded.
    """
    task = recorded["task"].get("name")
    if not isinstance(task, str):
        raise UserError(f"{where}: damaged: it has no task.name")
    model = recorded.get("model")
    config = defaults(task, model.get("architecture") if model else None)
    try:
        defined_in = dict(fields.each(ConfigDict(recorded.get(DEFINED_IN, {}))))
        config.update({n: _tuples(v) for n, v in recorded.items() if n != DEFINED_IN})
        _drop_withdrawn(config, where)
        if code:
            _require_code(dict(fields.each(config)), defined_in)
        check(config, defined_in)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise UserError(f"{where}: damaged: {text}") from error
    return config


def record(config: ConfigDict) -> dict[str, Any]:
    """Returns the content of config.json, which `complete` reads."""
    added = {n: registry.ADDED.get(value) for n, value in named(config).items()}
    files = fields.nested({name: file for name, file in added.items() if file})
    return config.to_dict() | ({DEFINED_IN: files.to_dict()} if files else {})


def _require_code(values: Mapping[str, Any], defined_in: Mapping[str, str]) -> None:
    """Raises UserError if a definition of a run's config file is missing.

    Args:
      values: Value of each field of the run.
      defined_in: A field -> the `--config` that defined its value.
    """
    for field, spec in defined_in.items():
        if values[field] not in registry.ADDED:
            kind = field.removesuffix(".name").rpartition(".")[2]
            raise UserError(
                f"this run's {kind} {values[field]!r} is defined in "
                f"{spec.partition(':')[0]}: add --config={spec}"
            )


def _drop_withdrawn(config: ConfigDict, where: str | os.PathLike) -> None:
    """Deletes fields of earlier versions, with a warning if the run had set them."""
    for name in fields.WITHDRAWN:
        group, field = name.split(".")
        default = fields.UNUSED.get(name)
        value = config[group].get(field, default)
        if field in config[group]:
            del config[group][field]
        if name in fields.UNUSED and value != default:
            _warn(f"{where}: config.{name}={value} is withdrawn and not used")
    if config.train.on_anomaly == "roll_back":
        _warn(f"{where}: config.train.on_anomaly=roll_back is withdrawn, now skip")
        config.train.on_anomaly = "skip"


@functools.cache
def _warn(line: str) -> None:
    log.warning("%s (CHANGELOG.md says what to use instead)", line)  # once


def _tuples(value: Any) -> Any:
    """Turns JSON's lists back into tuples."""
    if isinstance(value, Mapping):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _check_names(config: ConfigDict, spec: str) -> None:
    """Raises UserError if a field is missing or unknown.

    Code that a config file has added may read additional fields in `task`.
    """
    groups = (config.get(group) for group in ("task", "model"))
    task, model = (x if isinstance(x, ConfigDict) else ConfigDict() for x in groups)
    required = fields.required(str(task.get("name")), model.get("architecture"))
    values = dict(fields.each(config))
    for name in required:
        if name not in values:
            hint = "add it (bert_jax/config/fields.py has its default)"
            raise UserError(f"{spec}: no field config.{name}; {hint}")
    known = required | fields.OWN | fields.family(config)
    adds = any(value in registry.ADDED for value in named(config).values())
    for name in sorted(values.keys() - known):
        if not name.startswith("task.") or not adds:
            required = fields.defaults(known)
            raise faults.no_field(required, name, f"{spec}: config.{name}")


def field_of(text: str) -> str:
    """Returns the field in a `--config.FIELD=VALUE`, such as train.num_steps."""
    return text.lstrip("-").partition("=")[0].partition(".")[2]


def override(config: ConfigDict, text: str) -> tuple[str, Any, Any]:
    """Applies one `--config.FIELD=VALUE`.

    Returns:
      The field, its value before and its value now.

    Raises:
      UserError: the field does not exist, or the value has the wrong type.
    """
    path, equals, value = text.lstrip("-").partition("=")
    *groups, field = path.split(".")[1:]
    where: object = config
    for group in groups:
        where = where.get(group) if isinstance(where, ConfigDict) else None
    if not isinstance(where, ConfigDict) or field not in where:
        raise faults.no_field(config, field_of(text), f"--{path}")
    if isinstance(where[field], ConfigDict):
        raise UserError(f"--{path}: a group; set one of {', '.join(where[field])}")
    values = flags.FlagValues()
    args = ["", f"--config.{field}{equals}{value}"]
    before = where[field]
    try:
        # Define only the field's group, because everything defined is also written out
        # as YAML.
        config_flags.DEFINE_config_dict(
            "config", where, flag_values=values, lock_config=False, sys_argv=args
        )
        values(args)
    except (flags.Error, TypeError, ValueError) as error:
        kind = type(where[field]).__name__
        raise UserError(
            f"--{path}={value}: {path} takes a value of type {kind}"
        ) from error
    return path.partition(".")[2], before, where[field]
