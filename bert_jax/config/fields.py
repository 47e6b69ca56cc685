"""Every config field: its default, rule, purpose, and what fixes its value.

`common_fields.py` and `task_fields.py` define them, and families add some of their own.
`--help` and docs/config.md show them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict, FrozenConfigDict

from bert_jax.config.common_fields import FIELDS
from bert_jax.config.field import PLAIN, Field, empty_error
from bert_jax.config.task_fields import TASK, TASKS
from bert_jax.registry import FAMILIES

# Fields that the user's own config files have added.
OWN: dict[str, Field] = {}


def fields_of(config: Any) -> dict[str, Field]:
    """Returns every field that a config may have, by `GROUP.NAME`."""
    return FIELDS | TASK | OWN | family_fields(config)


def family_fields(config: Any) -> dict[str, Field]:
    """Returns the fields that only a config of this family has, or has otherwise."""
    found = FAMILIES.get(config.get("model", {}).get("architecture"))
    return dict(found.fields) if found else {}


def family_model_fields(family: Any) -> dict[str, Any]:
    """Returns the fields only in a family's `config.model`, with their defaults."""
    own = {n: f.default for n, f in family.fields.items() if n not in FIELDS}
    return {n.removeprefix("model."): own[n] for n in own if n.startswith("model.")}


def required_fields(
    task: str = "pretraining", architecture: Any = "bert"
) -> dict[str, Field]:
    """Returns the fields that each config of a task has. For a custom task only its
    name is known."""
    names = ("name", *TASKS.get(task, "").split())
    fields = FIELDS | {f"task.{name}": TASK[f"task.{name}"] for name in names}
    fields["task.name"] = Field(task, empty_error)
    if architecture in FAMILIES:
        own = FAMILIES[architecture].fields.items()
        fields |= {name: field for name, field in own if name.startswith("model.")}
    return fields


def default_config(fields: Mapping[str, Field]) -> ConfigDict:
    """Returns the config in which all of these fields have their default."""
    config = ConfigDict()
    for name, field in fields.items():
        group, _, last = name.rpartition(".")
        if group and group not in config:
            config[group] = ConfigDict()
        (config[group] if group else config)[last] = field.default
    return config


def with_values(config: ConfigDict, values: Mapping[str, Any]) -> FrozenConfigDict:
    """Returns a config with these values, by `GROUP.NAME`, that cannot be changed.

    Raises:
      AttributeError: Neither the config nor a table has the field.
    """
    changed, known = copy_mutable(config), fields_of(config)
    for name, value in values.items():
        group, _, last = name.rpartition(".")
        where = changed[group] if group else changed
        if last not in where and name not in known:
            raise AttributeError(f"config.{name}: no such field")
        where[last] = value
    return FrozenConfigDict(changed)


def copy_mutable(config: ConfigDict) -> ConfigDict:
    """Returns a copy of a config, frozen or not, that can be changed."""
    return ConfigDict(config.to_dict())


def task_values(config: ConfigDict) -> FrozenConfigDict:
    """Returns every field of `config.task`, with the default of one that it lacks."""
    known = {n: f for n, f in fields_of(config).items() if n.startswith("task.")}
    values = default_config(known).task
    values.unlock()
    return FrozenConfigDict({**values, **config.task})


def is_finetuning(config: ConfigDict) -> bool:
    """Returns whether texts have their length in `config.task`, and not those
    of the corpus's phases."""
    return hasattr(config.task, "max_seq_length")


def iter_fields(config: ConfigDict) -> Iterator[tuple[str, Any]]:
    """Yields the full name and the value of each field."""
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            yield from ((f"{name}.{inner}", its) for inner, its in iter_fields(value))
        else:
            yield name, value


def decided_values(config: ConfigDict) -> dict[str, Any]:
    """Returns the values that a run's weights decide, by `GROUP.NAME`."""
    known = fields_of(config)
    return {
        n: value for n, value in iter_fields(config) if known.get(n, PLAIN).from_weights
    }
