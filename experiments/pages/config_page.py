"""Writes docs/config.md: every config field, from the comments in configs/.

python -m experiments.pages.config_page
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bert_jax.config import configuration, fields, help
from bert_jax.errors import UserError
from bert_jax.runtime.storage import write_atomically
from experiments.lib import command_line
from experiments.lib.runner import ROOT

PAGE = ROOT / "docs" / "config.md"
# Each pre-training config, and the one it starts from.
_VARIANTS = {
    **{"base": "common", "large": "base", "lamb": "large", "tiny": "common"},
    **{"english": "common", "adapt": "common", "elmo": "common"},
    "gpt": "base",
}
_TYPES = {bool: "True or False", int: "integer", float: "number", str: "text"}
_HEAD = """# Every config field

Set a field with `--config.FIELD=VALUE`, or in a config file of your own
([pretraining.md](pretraining.md#a-config-of-your-own)). `--help --config=FILE` prints
the fields of one config with its values. A wrong type, or a value that is not allowed,
is an error in one line.

`python -m experiments.pages.config_page` writes this page from the comments in
`configs/`.

## Every run

`configs/common.py`: the defaults are those of BERT-Base's pre-training.
"""
_PRETRAINING = """
## What the pre-training configs set
"""
_FINETUNING = """
## What fine-tuning sets and adds

`configs/finetune/common.py` starts from `configs/base.py`, or from `configs/tiny.py` if
`size=tiny`; with `model=NAME` from the file of that name. Values here and below are
those of `size=base,model=bert`; `--help --config=FILE:ARGUMENTS` shows others.
"""

Values = Mapping[str, Any]  # by the field's name


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    command_line.Parser("experiments.pages.config_page", __doc__).parse_args(argv)
    write_atomically(PAGE, page())
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


def page() -> str:
    """The whole page, as Markdown."""
    return "".join([_HEAD, *_shared(), *_pretraining(), *_finetuning()])


def _shared() -> Iterator[str]:
    values, comments = _values("common"), _comments("common")
    abouts = _docstrings("common")
    for group in dict.fromkeys(map(_group, [*comments, *values])):
        about = abouts.get(f"_{group}")
        yield f"\n### {f'`{group}`' if group else 'At the top'}\n\n"
        yield f"{about}\n\n" if about else ""
        own = {name: value for name, value in values.items() if _group(name) == group}
        yield _fields(own, comments)


def _pretraining() -> Iterator[str]:
    yield _PRETRAINING
    for name, above in _VARIANTS.items():
        yield f"\n### `configs/{name}.py`\n\n{_about(name)}"
        yield f" Starts from `configs/{above}.py`. {_arguments(name)}\n\n"
        if added := [field for field in _values(name) if field not in _values(above)]:
            yield f"It adds {len(added)} fields:\n\n{_additions(name, above)}\n"
        yield _changes(name, above)


def _finetuning() -> Iterator[str]:
    yield f"{_FINETUNING}\n"
    yield _changes("finetune.common", "base")
    yield f"\nFields of every task:\n\n{_additions('finetune.common', 'common')}"
    common, there = _module("finetune.common"), _values("finetune.common")
    for model in common.MODELS[1:]:
        yield f"\nFields that `model={model}` adds to every task"
        yield f" ([families.md](families.md#{model})):\n\n"
        own = {n: v for n, v in _of_model(model).items() if n not in there}
        yield _fields(own, _comments(model))
    folder = Path(configuration.CONFIGS) / "finetune"
    for path in sorted(folder.glob("*.py")):
        name = f"finetune.{path.stem}"
        if path.stem in ("__init__", "common"):
            continue
        yield f"\n### `configs/finetune/{path.name}`\n\n{_about(name)}"
        yield f" {_arguments(name)}\n\n{_additions(name, 'finetune.common')}\n"
        yield _changes(name, "finetune.common")
        yield from _additions_of_models(name)


def _additions_of_models(name: str) -> Iterator[str]:
    """The fields that only one model has in this task."""
    module, common = _module(name), _module("finetune.common")
    takes = inspect.signature(module.get_config).parameters
    for model in common.MODELS[1:] if "model" in takes else ():
        there = {*_values(name), *_of_model(model)}
        values = dict(fields.each(module.get_config(model=model)))
        if own := {field: v for field, v in values.items() if field not in there}:
            yield f"\nWith `model={model}` also:\n\n{_fields(own, _comments(model))}"


def _of_model(model: str) -> Values:
    """The fields of all tasks with this model."""
    common = _module("finetune.common")
    config = common.get_config(model=model)
    return dict(fields.each(common.of_model(config, "base", model)))


def _additions(name: str, above: str) -> str:
    """The fields that a config has and the one above it has not."""
    there = _values(above)
    new = {field: v for field, v in _values(name).items() if field not in there}
    return _fields(new, _comments(name))


def _fields(values: Values, comments: Mapping[str, str]) -> str:
    """A table.

    Raises:
      UserError: a field has no comment.
    """
    for name in values:
        if name not in comments:
            raise UserError(f"configs/: no comment says what {name} does; add one")
    order = [name for name in comments if name in values]  # that of the file
    rows = [
        f"| `{name}` | {_type(values[name])} | {_shown(values[name])} "
        f"| {_cell(comments[name])} |\n"
        for name in order
    ]
    return "".join(["| field | type | default | |\n|---|---|---|---|\n", *rows])


def _changes(name: str, above: str) -> str:
    """The values that differ from those above; why, where the file says so."""
    there, comments = _values(above), _comments(name)
    changed = {
        field: value
        for field, value in _values(name).items()
        if field in there and there[field] != value and field != "task.name"
    }
    listed = ", ".join(f"`{field}={value}`" for field, value in changed.items())
    lines = [f"It sets {listed}.\n"] if listed else []
    lines += [
        f"\n`{field}`: {_cell(comments[field])}\n"
        for field in changed
        if field in comments
    ]
    return "".join(lines)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"configs.{name}")


def _values(name: str) -> Values:
    return dict(fields.each(_module(name).get_config()))


def _comments(name: str) -> Mapping[str, str]:
    return help.comments_of(Path(inspect.getfile(_module(name))))


def _docstrings(name: str) -> dict[str, str]:
    """The first line of each function's docstring."""
    tree = ast.parse(inspect.getsource(_module(name)))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = {node.name: ast.get_docstring(node) for node in functions}
    return {name: text.splitlines()[0] for name, text in found.items() if text}


def _about(name: str) -> str:
    """The first line of a config's docstring."""
    text = (_module(name).__doc__ or "").splitlines()[0]
    return text if text.endswith((".", "?")) else f"{text.rstrip(':')}."


def _arguments(name: str) -> str:
    """The arguments of a config file, with their defaults."""
    given = inspect.signature(_module(name).get_config).parameters.values()
    listed = [f"`{each.name}={each.default}`".replace("=`", "`") for each in given]
    return f"Arguments: {', '.join(listed)}." if listed else "It takes no arguments."


def _group(name: str) -> str:
    return name.rpartition(".")[0]


def _type(value: Any) -> str:
    if isinstance(value, tuple):
        return f"tuple of {'integers' if value and type(value[0]) is int else 'texts'}"
    return _TYPES[type(value)]


def _shown(value: Any) -> str:
    return f"`{value}`" if value != "" else "empty"


def _cell(comment: str) -> str:
    """A comment as Markdown: names with a full stop as code, pages as links."""
    comment = re.sub(r"docs/(\w+\.md)", r"[\1](\1)", comment)
    text = re.sub(
        r"(?<![\w/`\[(])([a-z]\w*\.[a-z]\w*(?:=\w+)?)(?![\w/`])", r"`\1`", comment
    )
    return text.replace("|", r"\|")


if __name__ == "__main__":
    command_line.start(main)
