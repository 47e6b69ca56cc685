"""Reads JSON files that others wrote."""

import json
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.errors import UserError
from bert_jax.runtime import storage


def inside(folder: Path, name: str) -> Path | None:
    """The path of a file in the folder; None if it does not exist."""
    path = folder / name
    return path if path.is_file() else None


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Reads an object from a JSON file.

    Raises:
      UserError: the file is missing, or is not a JSON object.
    """
    path = inside(folder, name)
    if path is None:
        raise UserError(f"{folder}: has no {name}")
    return read_object(path)


def read_object(path: Path | epath.Path, hint: str = "") -> dict[str, Any]:
    """As `read_json`, for a file anywhere.

    Args:
      hint: the end of an error message.
    """
    try:
        storage.require_file(path)
        content = path.read_bytes()
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"{path}: cannot be read ({why}){hint}") from error
    value = parse(content, str(path), hint)
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise UserError(f"{path}: not a JSON object, but a {kind}{hint}")
    return value


def parse(text: str | bytes, where: str, hint: str = "") -> Any:
    """Parses JSON.

    Args:
      where: the file, and the line if it is one of many.
      hint: the end of an error message.

    Raises:
      UserError: not JSON in UTF-8, or nested too deeply.
    """
    try:
        plain = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(plain)
        if "\\ud" in plain.lower():  # perhaps half a pair, which is no character
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{where}: not JSON ({reason}){hint}") from error
    return value


def shown(value: Any) -> str:
    """A value from a file, for an error message: short, and on one line."""
    return repr(value)[:80]
