"""Temporary files and folders that replace a target at the end; cleans up after kills.

A temporary file is beside its target, under a hidden name that ends in `.bert_jax`. Its
process holds a lock on it. A killed process cannot clean up: the next process that
writes the same target deletes the temporaries that nobody has locked.
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
_LOCK = "lock"  # the lock file in a temporary folder
_HELD = (errno.EAGAIN, errno.EACCES)
# A full disk, a quota, a limit on a file's size.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of file systems without locks: nothing there counts as abandoned.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def lock(path: Path) -> int | None:
    """Locks a file until it is closed; creates it if it is missing.

    The lock ends with the process; children do not inherit it (POSIX record locks). The
    holder may delete the file.

    Returns:
      The open file; None if another process holds it.

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
        os.close(file)  # its last holder deleted it: create it again


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
    _sweep(target)
    path = _new_name(target)
    held = lock_if_possible(path)
    try:
        with naming(target), open(held, "w", encoding="utf-8") as opened:
            yield opened
            opened.flush()
            path.replace(target)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder for the caller to move; deletes it otherwise."""
    _sweep(target)
    path = _new_name(target)
    path.mkdir()
    held = None
    try:
        held = lock_if_possible(path / _LOCK)
        new = path / "new"
        new.mkdir()
        yield new
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if held is not None:
            os.close(held)


def _new_name(target: Path) -> Path:
    return target.with_name(f"{_start(target)}{secrets.token_hex(4)}{_MARK}")


def _start(target: Path) -> str:
    """What its temporaries' names begin with: file names have at most 255 bytes."""
    return f".{target.name.encode(errors='ignore')[:200].decode(errors='ignore')}."


def lock_if_possible(path: Path) -> int:
    """Opens a file, and locks it where the file system has locks; see `lock`.

    Raises:
      FileExistsError: Another process has locked it.
    """
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
    start = _start(target)
    with contextlib.suppress(PermissionError):  # the folder may not be readable
        for name in os.listdir(target.parent):
            if name.startswith(start) and name.endswith(_MARK):
                _delete_if_abandoned(target.parent / name)


def _delete_if_abandoned(path: Path) -> None:
    # Best effort: what cannot be deleted, such as another user's files, stays.
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
