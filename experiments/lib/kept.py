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
    if fault := _fault(found, kind):
        raise UserError(f"{path}: damaged: {fault}; {hint}")
    return found


def _fault(value: Any, kind: Kind, where: str = "") -> str:
    """What is wrong with a value; empty where nothing is."""
    if isinstance(kind, Mapping):
        if not isinstance(value, dict):
            return _not(value, where, "an object")
        for name in kind.keys() - {str} - value.keys():
            return f"it has no {_inside(where, name)}"
        names = value if str in kind else kind
        faults = (
            _fault(value[name], kind.get(name, kind.get(str)), _inside(where, name))
            for name in names
        )
        return next(filter(None, faults), "")
    if isinstance(kind, list | tuple):
        if not isinstance(value, list):
            return _not(value, where, "a list")
        if isinstance(kind, tuple) and len(value) != len(kind):
            return f"{where} has {len(value)} values, not {len(kind)}"
        each = kind if isinstance(kind, tuple) else kind * len(value)
        pairs = enumerate(zip(value, each, strict=True))
        faults = (_fault(v, own, f"{where}[{i}]") for i, (v, own) in pairs)
        return next(filter(None, faults), "")
    if isinstance(value, bool):
        fits = False
    elif kind is float:  # a larger one would overflow where it is added to others
        fits = isinstance(value, float) and not math.isfinite(value)
        fits = fits or (isinstance(value, int | float) and abs(value) < 1e300)
    else:
        fits = isinstance(value, kind)
    return "" if fits else _not(value, where, _NAMES[kind])


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _not(value: Any, where: str, wanted: str) -> str:
    return f"{where} is {untrusted.shown(value)}, not {wanted}"
