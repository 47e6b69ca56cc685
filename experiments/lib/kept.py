"""JSON files that a command keeps for its next start, or for another command."""

import json
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime.storage import write_atomically


def write(path: Path, value: Any) -> None:
    """Writes a file completely or not at all; makes its folders."""
    write_atomically(path, json.dumps(value, indent=1) + "\n")


def read(
    path: Path, hint: str = "delete it, and the same command makes it again"
) -> dict[str, Any]:
    """Reads an object.

    Raises:
      UserError: the file is missing or is not a JSON object.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); {hint}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: not a JSON object; {hint}")
    return found
