"""Files and folders that are there whole or not at all, and what a kill leaves of them.

What is written lies beside its target, under a hidden name that ends in `.bert_jax`,
and is locked for as long as its process lives. A process that was killed cannot clear
up: the next one that writes the same target deletes what nobody holds.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

_MARK = ".bert_jax"
_LOCK = "lock"  # in a temporary folder
_HELD = (errno.EAGAIN, errno.EACCES)
# Answers of file systems without locks: nothing there is taken for abandoned.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def lock(path: Path) -> int | None:
    """Locks a file, made if it is missing, until it is closed.

    The lock ends with its process and is no child's (POSIX record locks). Whoever holds
    it may delete the file.

    Returns:
      The open file; None where another process holds it.

    Raises:
      OSError: it cannot be opened; of NO_LOCKS: it cannot be locked.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                return file
        except OSError as error:
            os.close(file)
            if error.errno in _HELD:
                return None
            raise
        os.close(file)  # deleted by its last holder: the next one is made


@contextlib.contextmanager
def file(target: Path) -> Iterator[TextIO]:
    """A file to write, which takes the place of `target` in the end."""
    _sweep(target)
    path = _new_name(target)
    held = _lock_if_possible(path)
    try:
        with open(held, "w", encoding="utf-8") as opened:
            yield opened
            opened.flush()
            path.replace(target)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def folder(target: Path) -> Iterator[Path]:
    """An empty folder to be moved to `target`, or to be deleted in the end."""
    _sweep(target)
    path = _new_name(target)
    path.mkdir()
    held = None
    try:
        held = _lock_if_possible(path / _LOCK)
        new = path / "new"
        new.mkdir()
        yield new
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if held is not None:
            os.close(held)


def _new_name(target: Path) -> Path:
    # A file's name has 255 bytes at most.
    return target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}{_MARK}")


def _lock_if_possible(path: Path) -> int:
    try:
        held = lock(path)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if held is None:
        raise FileExistsError(errno.EEXIST, "taken by another process", str(path))
    return held


def _sweep(target: Path) -> None:
    """Deletes the temporaries of `target` whose processes have ended."""
    start = f".{target.name[:200]}."
    with contextlib.suppress(PermissionError):  # of a folder that may not be listed
        for name in os.listdir(target.parent):
            if name.startswith(start) and name.endswith(_MARK):
                _delete_if_abandoned(target.parent / name)


def _delete_if_abandoned(path: Path) -> None:
    # Nobody waits for it: what cannot be deleted, another user's for one, stays.
    with contextlib.suppress(OSError):
        held = lock(path / _LOCK if path.is_dir() else path)
        if held is None:
            return
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        finally:
            os.close(held)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
