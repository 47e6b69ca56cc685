"""Files and folders under a temporary name, which replace a target at the end."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

# A full disk, a quota, a limit on a file's size.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def naming(place: object) -> Iterator[None]:
    """Names the file in the error of a full disk: the system does not."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            error.filename = error.filename or str(place)
        raise


@contextlib.contextmanager
def file(target: Path) -> Iterator[TextIO]:
    """Yields a file to write; replaces `target` with it at the end."""
    path = _new_name(target)
    try:
        with naming(target), path.open("x", encoding="utf-8") as opened:
            yield opened
        path.replace(target)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder for the caller to move; deletes it otherwise."""
    path = _new_name(target)
    new = path / "new"
    new.mkdir(parents=True)
    try:
        yield new
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _new_name(target: Path) -> Path:
    # File names have at most 255 bytes.
    start = os.fsdecode(os.fsencode(target.name)[:200])
    return target.with_name(f".{start}.{secrets.token_hex(4)}.bert_jax")
