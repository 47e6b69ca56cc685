"""Config fields with values of every type, wherever a field can be set."""

import functools
import json
import random
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import configuration
from tests.system import malformed_values as values
from tests.system.cases import Case, Draw, begin
from tests.micro_data import KINDS


@functools.cache
def config_of(task: str) -> ConfigDict:
    """The config that a kind of data is made from, with all fields of its task."""
    extends = KINDS[task](random.Random(task)).extends
    path, colon, arguments = extends.partition(":")
    return configuration.load(
        f"{configuration.CONFIGS / path}.py{colon}{arguments}", []
    )


def drawn(draw: Draw, tasks: tuple[str, ...]) -> tuple[str, str, Any]:
    """A task, a field and its good value: each field as often as the others."""
    fields: dict[str, dict[str, Any]] = {}
    for task in tasks:
        for name, default in values.every_field(config_of(task)):
            fields.setdefault(name, {})[task] = default
    names = draw.shuffled(sorted(fields))
    name = names[draw.turn % len(names)]
    task = draw.rng.choice(sorted(fields[name]))
    return task, name, fields[name][task]


def _begin(draw: Draw, rule: str, task: str, stages: tuple[str, ...]) -> Case:
    # One field after the other, in any mode.
    draw = Draw(
        *(draw.stages, (task,), draw.folder, draw.rng, draw.rng.randrange(99)),
        draw.order,
    )
    return begin(draw, rule, stages)


def on_command_line(draw: Draw) -> Case:
    """--config.FIELD=VALUE."""
    task, name, default = drawn(draw, draw.tasks)
    value = draw.rng.choice(values.of(name, default))
    case = _begin(draw, "field on the command line", task, ())
    case.flags.append(f"--config.{name}={values.on_command_line(value.given)}")
    case.description = f"{name}={value.given!r:.60}"
    case.refused = value.refused and not values.means_the_same(value.given, default)
    return case


def in_config_file(draw: Draw) -> Case:
    """A config file that sets the field, of whatever type."""
    task, name, default = drawn(draw, draw.tasks)
    value = draw.rng.choice(values.of(name, default))
    case = _begin(draw, "field in a config file", task, ("inputs",))
    path = case.folder / "in" / "micro.py"
    text = f"float({str(value.given)!r})"
    if not (isinstance(value.given, float) and "n" in text):
        text = repr(value.given)
    lines = (
        f'extends = "base_of_it.py"\n\ndef get_config(config):\n'
        f"    with config.unlocked(), config.ignore_type():\n"
        f"        config.{name} = {text}\n    return config\n"
    )
    path.rename(path.with_name("base_of_it.py"))
    path.write_text(lines, encoding="utf-8")
    case.description = f"{name}={value.given!r:.60}"
    case.refused = value.refused
    return case


def in_work_directory(draw: Draw) -> Case:
    """A run's config.json with another value of a field."""
    trained = tuple(task for task in draw.tasks if task != "ax")
    task, name, default = drawn(draw, trained)
    case = _begin(draw, "field in a run's config.json", task, ("run",))
    path = case.folder / "run" / "config.json"
    document = json.loads(path.read_text())
    *groups, last = name.split(".")
    parent = document
    for group in groups:
        parent = parent[group]
    value = draw.rng.choice(values.of(name, default))
    given = value.given if _is_json(value.given) else None
    if draw.rng.random() < 0.1:
        del parent[last]
        case.description = f"{name} is not there"
    else:
        parent[last] = given
        case.description = f"{name}={given!r:.60}"
    path.write_text(json.dumps(document, indent=2))
    if case.mode == "describe":  # by the config file
        case.flags.remove("--config=in/micro.py")
    return case


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def of_no_such_field(draw: Draw) -> Case:
    """A field's or a group's name with a mistake in it, with a good value."""
    task, name, default = drawn(draw, draw.tasks)
    case = _begin(draw, "mistyped field", task, ())
    groups = name.split(".")
    at = draw.rng.randrange(len(groups))
    known = {
        part for x, _ in values.every_field(config_of(task)) for part in x.split(".")
    }
    wrong = values.mistyped(groups[at], draw.rng)
    if wrong in known:
        wrong += "_"
    groups[at] = wrong
    shown = draw.rng.choice([default, 1])
    dashes = draw.rng.choice(["--", "-"])
    flag = f"{dashes}config.{'.'.join(groups)}={values.on_command_line(shown)}"
    case.flags.append(flag)
    case.description, case.refused = flag, True
    return case


RULES = {
    on_command_line: 6,
    in_config_file: 3,
    in_work_directory: 3,
    of_no_such_field: 1,
}
