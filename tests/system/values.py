"""Figures of how the code hangs together, counted in a checkout.

    python -m tests.system.values

Another folder than this one may be named. Fewer is better: a part is easier to
understand the less it must know of the others.
"""

import ast
import collections
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_WORD = re.compile(r"[A-Za-z_]\w*")
_ROOMS = ("bert_jax", "families", "configs", "examples", "experiments", "tests")


def figures(folder: Path) -> dict[str, int]:
    """Returns each figure by its name."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=folder, check=True, capture_output=True
    ).stdout.decode()
    texts = {name: (folder / name).read_text("utf-8") for name in listed.split()}
    # Families had a folder of their own.
    core = select(texts, "bert_jax/", but="bert_jax/families/")
    product = core | select(texts, "bert_jax/families/") | select(texts, "families/")
    models = select(texts, "bert_jax/models/").values()
    words = collections.Counter(w for t in product.values() for w in _WORD.findall(t))
    asks = re.compile(r"(?:config\.task|\btask)\.get\(|in (?:self\.)?config\.task\b")
    found = {
        "parameters of train_step": parameters("train_step", core.values()),
        "FAMILIES in models/": sum(len(re.findall(r"\bFAMILIES\b", t)) for t in models),
        "members of Family": members("Family", core["bert_jax/family.py"]),
        "members of TaskDefinition": members(
            "TaskDefinition", core.get("bert_jax/tasks/definition.py", "")
        ),
        "questions of a task's type": sum(
            len(asks.findall(text)) for text in core.values()
        ),
        "inspect.signature": sum(
            t.count("inspect.signature") for t in product.values()
        ),
        "functions named once": sum(
            words[name] == 2 and not name.startswith("__")
            for text in core.values()
            for name in functions(text)
        ),
        "registries that models/ imports": sum(
            len(re.findall(r"^from bert_jax\.(?:registry|family) import", t, re.M))
            for t in models
        ),
    }
    for group, field in (("", "init_from"), ("train", "seeds"), ("task", "kind")):
        count = sum(reads(text, group, field) for text in core.values())
        found[f"files that read {field}"] = count
    for room in _ROOMS:
        own = select(texts, f"{room}/")
        found[f"lines of {room}/"] = sum(len(t.splitlines()) for t in own.values())
        found[f"statements of {room}/"] = sum(map(statements, own.values()))
    return found


def select(texts: dict[str, str], start: str, but: str = "\0") -> dict[str, str]:
    """Returns the texts of the paths that start so."""
    return {
        name: text
        for name, text in texts.items()
        if name.startswith(start) and not name.startswith(but)
    }


def parameters(name: str, texts: Iterable[str]) -> int:
    """Returns the most parameters that a function of this name has."""
    found = (
        len(node.args.args) + len(node.args.kwonlyargs)
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return max(found, default=0)


def members(name: str, text: str) -> int:
    """Returns the number of attributes and methods that a class defines."""
    return sum(
        isinstance(member, ast.Assign | ast.AnnAssign | ast.FunctionDef)
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == name
        for member in node.body
    )


def functions(text: str) -> Iterator[str]:
    """Yields the name of each function and method."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def reads(text: str, group: str, field: str) -> bool:
    """Returns whether code reads a field, as GROUP.FIELD or by its name.

    An object's own attribute of this name, such as an estimator's, is not a field.
    """
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name("self")):
                pass
            case ast.Attribute(value=owner, attr=name, ctx=ast.Load()) if name == field:
                last = getattr(owner, "attr", getattr(owner, "id", ""))
                # The fields of a task are also its options.
                if not group or last in (
                    group,
                    "options" if group == "task" else group,
                ):
                    return True
            case ast.Subscript(slice=ast.Constant(value=name)) if name == field:
                return True
    return False


def statements(text: str) -> int:
    """Returns the number of statements."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, count in figures(folder).items():
        print(f"{count:7,}  {name}")


if __name__ == "__main__":
    main()
