"""Says so where `python -m experiments.NAME` names a module that is no command.

Python would import such a module, print nothing and end with 0.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
_MOST = 8  # commands to name


def check(argv: Sequence[str]) -> None:
    """Ends with one line and status 2 if `-m` names a module that is no command.

    Args:
      argv: as the interpreter got it, its own options included.
    """
    if "-m" not in argv[:-1]:
        return
    name, known = argv[argv.index("-m") + 1], commands()
    there = any(f"{file}.".startswith(f"{name}.") for file in modules())
    if there and name not in known:  # what is not there Python reports
        near = nearest(name, known)
        more = f" and {len(near) - _MOST} more" if len(near) > _MOST else ""
        text = f"{name} is no command; near it: {', '.join(near[:_MOST])}{more}"
        print(f"error: {text}", file=sys.stderr)
        sys.exit(2)


def modules() -> dict[str, Path]:
    """The files of experiments/ by the name that `-m` takes."""
    found = {}
    for path in sorted(HERE.rglob("*.py")):
        name = ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__").removesuffix(".__main__")] = path
    return found


def commands() -> list[str]:
    """The modules that do something when they are run."""
    start = '\nif __name__ == "__main__":\n'
    return [n for n, path in modules().items() if start in path.read_text("utf-8")]


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """The commands of a module's room; else all."""
    room = name.split(".")[:2]
    return [c for c in known if c.split(".")[:2] == room] or list(known)
