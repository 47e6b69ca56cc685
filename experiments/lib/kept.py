"""JSON files that a command has kept, checked when it or another reads them again."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import write_atomically

# What a value must be: a type (float: any number), [kind] or {str: kind} of any length,
# (kind, kind) of this length, or {"name": kind} with these names and perhaps more.
Kind = Any
_NAMES = {float: "a number", int: "a whole number", str: "a text"}
_HINT = "delete it, and the same command makes it again"


def write(path: Path, value: Any) -> None:
    """Writes a file completely or not at all; makes its folders."""
    write_atomically(path, json.dumps(value, indent=1) + "\n")


def read(path: Path, kind: Mapping, hint: str = _HINT) -> dict[str, Any]:
    """An object that `write` wrote.

    Raises:
      UserError: the file is damaged: no JSON, or of another kind.
    """
    return check(untrusted.read_object(path, f"; {hint}"), kind, path, hint)


def check(found: Any, kind: Kind, path: Path | str, hint: str = _HINT) -> Any:
    """What was read from a file; raises UserError if it is of another kind.

    Args:
      path: of the file, and perhaps a place in it.
    """
    try:
        _check(found, kind, "")
    except ValueError as fault:
        raise UserError(f"{path}: damaged: {fault}; {hint}") from fault
    return found


def _check(value: Any, kind: Kind, where: str) -> None:
    """Raises ValueError that says what is wrong with a value, if something is."""
    if isinstance(kind, Mapping):
        _require(isinstance(value, dict), value, where, "an object")
        start = f"{where}." if where else ""
        for name in kind.keys() - {str} - value.keys():
            raise ValueError(f"it has no {start}{name}")
        for name in value if str in kind else kind:
            _check(value[name], kind.get(name, kind.get(str)), f"{start}{name}")
    elif isinstance(kind, list | tuple):
        _require(isinstance(value, list), value, where, "a list")
        if isinstance(kind, tuple) and len(value) != len(kind):
            raise ValueError(f"{where} has {len(value)} values, not {len(kind)}")
        for index, one in enumerate(value):
            _check(one, kind[index % len(kind)], f"{where}[{index}]")
    else:
        _require(_fits(value, kind), value, where, _NAMES[kind])


def _require(fits: bool, value: Any, where: str, wanted: str) -> None:
    if not fits:
        raise ValueError(f"{where} is {untrusted.shown(value)}, not {wanted}")


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    if kind is float:  # a larger one would overflow where it is added to others
        infinite = isinstance(value, float) and not math.isfinite(value)
        return infinite or (isinstance(value, int | float) and abs(value) < 1e300)
    return isinstance(value, kind)
