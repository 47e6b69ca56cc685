"""Reads files from others safely: nothing outside their folder, nothing huge."""

import gc
import json
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.errors import UserError
from bert_jax.runtime import storage

# A config of a thousand labels has some 50 kB; an index of a thousand layers 2 MB.
MAX_JSON_BYTES = 5_000_000
# A tokenizer.json of 120,000 pieces has 3 MB.
MAX_VOCABULARY_BYTES = 50_000_000


def inside(folder: Path, name: str, limit: int | None = None) -> Path | None:
    """The path of a regular file in the folder; None if it does not exist.

    Args:
      limit: its maximum size in bytes.

    Raises:
      UserError: it is outside the folder, not a regular file, or too large.

    The cache of huggingface_hub has links: NAME/snapshots/COMMIT/FILE to NAME/blobs/.
    """
    path = folder / name
    if not path.is_symlink() and not path.exists():
        return None
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a loop, or a missing target
        raise UserError(f"{path}: a link that leads to no file") from error
    home = folder.resolve()
    homes = [home]
    if home.parent.name == "snapshots":
        homes.append(home.parent.parent / "blobs")
    if not any(real.is_relative_to(home) for home in homes):
        raise UserError(
            f"{path} links out of its folder, to {real}; copy the file itself there"
        )
    if not real.is_file():
        raise UserError(f"{path}: not a file")
    size = real.stat().st_size
    if limit is not None and size > limit:
        raise UserError(f"{path}: has {size:,} bytes; the limit is {limit:,}")
    return path


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Reads an object from a JSON file.

    Raises:
      UserError: the file is missing, or is not a JSON object.
    """
    path = inside(folder, name, MAX_JSON_BYTES)
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
    """Parses JSON from others.

    Args:
      where: the file, and the line if it is one of many.
      hint: the end of an error message.

    Raises:
      UserError: not JSON in UTF-8, nested too deeply, a number with thousands of
        digits, or half of a surrogate pair in a string.
    """
    try:
        plain = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = loads(plain)
        # Only an escape can give half a pair; those of both halves begin with a D.
        if "\\ud" in plain or "\\uD" in plain:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(
            f"{where}: {half!a} is half of a surrogate pair; write the character itself"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{where}: not JSON ({reason}){hint}") from error
    return value


def loads(text: str | bytes) -> Any:
    """As `json.loads`, with garbage collection paused.

    Deep nesting ends at the recursion limit. A finalizer that ran there would fail, and
    Python would print that.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return json.loads(text)
    finally:
        if collects:
            gc.enable()


def shown(value: Any) -> str:
    """A value from a file, for an error message: short, and on one line."""
    return repr(value)[:80]
