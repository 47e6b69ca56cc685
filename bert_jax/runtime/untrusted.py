"""Reads files that others wrote."""

import json
import math
from typing import Any

from bert_jax.errors import UserError, first_line
from bert_jax.runtime.storage import Path

_POINTER = b"version https://git-lfs"


def read_optional(path: Path) -> dict[str, Any]:
    """Reads as `read_object`, or returns an empty object if there is no such file."""
    return read_object(path) if path.is_file() else {}


def read_object(path: Path) -> dict[str, Any]:
    """Reads an object from a JSON file. Raises UserError if it cannot."""
    try:
        value = parse_json(path.read_bytes(), str(path))
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"{path}: cannot be read ({why})") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: not a JSON object, but a {type(value).__name__}")
    return value


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"has {number}: write a number that is finite, or null")
    return value


_STRICT = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def parse_json(
    text: str | bytes, where: str, hint: str = "", *, finite: bool = False
) -> Any:
    """Parses JSON. Raises UserError if it is invalid, not UTF-8, or nested too deeply.

    Args:
      where: The file, and the line if it is one of many.
      hint: End of an error message.
      finite: Whether NaN and infinity are invalid, as JSON has it.
    """
    try:
        plain = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = _STRICT.decode(plain) if finite else json.loads(plain)
        if "\\ud" in plain.lower():  # perhaps half a pair, which is not a character
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({first_line(error)}){hint}") from error
    return value


def refuse_pointer(path: Path) -> None:
    """Raises UserError if a file is only Git LFS's pointer to it."""
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(
                f"{path}: only a pointer of Git LFS; run `git lfs pull` in its folder"
            )
