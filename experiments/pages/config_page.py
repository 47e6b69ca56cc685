"""Writes docs/config.md: every config field.

python -m experiments.pages.config_page
"""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from bert_jax.commands import command_line
from bert_jax.commands.runner import ROOT
from bert_jax.config import configuration, fields
from bert_jax.config.field import Field, value_words
from bert_jax.config.files import CONFIGS
from bert_jax.config.task_fields import GLUE
from bert_jax.errors import UserError
from bert_jax.families.elmo import fields as elmo
from bert_jax.registry import FAMILIES
from bert_jax.runtime.storage import write_atomically

PAGE = ROOT / "docs" / "config.md"
# The config that another one starts from. The rest start from the defaults.
_STARTS = {
    **dict.fromkeys(("large", "gpt", "roberta", "modernbert"), "base"),
    **{"electra": "base", "deberta_v3": "base", "lamb": "large"},
}
_HEAD = """# Every config field

Set a field with `--config.FIELD=VALUE`, or in a config file of your own
([pretraining.md](pretraining.md#a-config-of-your-own)). `--help --config=FILE` prints
the fields that a config's task reads, with its values. A wrong type, or a value that is
not allowed, is an error in one line.

`resume` after a type: the field may change when a run is resumed. `inference`: it may
have another value than in the run in the modes that do not train. A field without
the word is refused if it differs.

`python -m experiments.pages.config_page` writes this page from
`bert_jax/config/common_fields.py`, `task_fields.py` and each family's `fields.py`.

## Every run

The defaults are those of BERT-Base's pre-training.
"""
_TASKS = """
## Tasks

| task | fields of its own |
|---|---|
"""
_CONFIGS = """
## What the configs set

Fine-tuning starts from `configs/base.py`, or from `configs/tiny.py` if `recipe=tiny`;
with `model=NAME` from the file of that name (`bert_jax/config/recipes.py`). Values
below are those of each file's default arguments; `--help --config=FILE:ARGUMENTS` shows
others.
"""


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    command_line.Parser("experiments.pages.config_page", __doc__).parse_args(argv)
    write_atomically(PAGE, page())
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


def page() -> str:
    """Returns the whole page, as Markdown."""
    return "".join([_HEAD, *_shared(), *_tasks(), *_families(), *_configs()])


def _shared() -> Iterator[str]:
    groups = dict.fromkeys(name.rpartition(".")[0] for name in fields.FIELDS)
    for group in groups:
        own = {n: f for n, f in fields.FIELDS.items() if n.rpartition(".")[0] == group}
        yield f"\n### {f'`{group}`' if group else 'At the top'}\n\n"
        yield _table(own)


def _tasks() -> Iterator[str]:
    yield _TASKS
    others = {k: v for k, v in fields.TASKS.items() if k not in GLUE}
    glue = {"/".join(GLUE): fields.TASKS["mnli"]}
    for names, own in (glue | others).items():
        listed = ", ".join(f"`{name}`" for name in own.split())
        yield f"| {names} | {listed} |\n"
    yield f"\n{_table(fields.TASK)}"


def _families() -> Iterator[str]:
    for name, family in FAMILIES.items():
        own = {n: f for n, f in family.fields.items() if n not in fields.FIELDS}
        if own:
            yield f"\n## Fields of {family.title} alone\n\n"
            anchor = name.replace("_", "-")
            page = f"{name}.md" if name == "gpt" else f"encoders.md#{anchor}"
            yield f"[{page.partition('#')[0]}]({page}).\n\n{_table(own)}"
    yield "\n## Fields of an ELMo alone\n\n[elmo.md](elmo.md).\n\n"
    yield _table(elmo.FIELDS)


def _configs() -> Iterator[str]:
    yield _CONFIGS
    for name in sorted(path.stem for path in CONFIGS.glob("*.py")):
        above = _STARTS.get(name, "")
        yield f"\n### `configs/{name}.py`\n\n{_about(name)}"
        start = f"`configs/{above}.py`" if above else "the defaults"
        yield f" Starts from {start}. {_arguments(name)}\n\n"
        yield _changes(_values(name), _values(above))
    base = _values("base")
    for path in sorted((CONFIGS / "finetune").glob("*.py")):
        name = f"finetune.{path.stem}"
        yield f"\n### `configs/finetune/{path.name}`\n\n{_about(name)}"
        yield f" {_arguments(name)}\n\n{_changes(_values(name), base)}"


def _table(own: Mapping[str, Field]) -> str:
    """Returns a table of fields.

    Raises:
      UserError: A field has no text that explains it.
    """
    rows = ["| field | type | default | |\n|---|---|---|---|\n"]
    for name, field in own.items():
        if not field.doc:
            raise UserError(f"no text says what {name} does; add its `doc`")
        may = [value_words(field)]
        may += ["resume"] if field.fixed_by == "none" else []
        may += ["inference"] if field.may_differ else []
        default = f"`{field.default}`" if field.default != "" else "empty"
        cell = _cell(field.doc)
        rows.append(f"| `{name}` | {'; '.join(may)} | {default} | {cell} |\n")
    return "".join(rows)


def _changes(values: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Returns the values that differ from those above, or from a task's defaults."""
    there = {n: field.default for n, field in fields.TASK.items()} | {**there}
    changed = [
        f"{name}={value}"
        for name, value in values.items()
        if name in there and there[name] != value and name != "task.name"
    ]
    return f"It sets `{', '.join(changed)}`.\n" if changed else ""


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"configs.{name}")


def _values(name: str) -> dict[str, Any]:
    given = _module(name).get_config() if name else configuration.with_defaults()
    return dict(fields.iter_fields(given))


def _about(name: str) -> str:
    """Returns the first paragraph of a config's docstring."""
    paragraph = " ".join((_module(name).__doc__ or "").split("\n\n")[0].split())
    return f"{paragraph.rstrip('.:?')}."


def _arguments(name: str) -> str:
    """Returns the arguments of a config file, with their defaults."""
    given = inspect.signature(_module(name).get_config).parameters.values()
    listed = [f"`{each.name}={each.default}`".replace("=`", "`") for each in given]
    return f"Arguments: {', '.join(listed)}." if listed else "It takes no arguments."


def _cell(text: str) -> str:
    """Formats a text as Markdown: names with a full stop as code, pages as links."""
    text = re.sub(r"docs/(\w+\.md)", r"[\1](\1)", text)
    text = re.sub(
        r"(?<![\w/`\[(])([a-z]\w*\.[a-z]\w*(?:=\w+)?)(?![\w/`])", r"`\1`", text
    )
    return text.replace("|", r"\|")


if __name__ == "__main__":
    command_line.start(main)
