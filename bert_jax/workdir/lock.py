"""Lets one process at a time train in a work directory."""

import contextlib
import os
import pathlib
import platform
from collections.abc import Iterator
from datetime import UTC, datetime

import filelock

from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path

NAME = ".lock"


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Holds the work directory; creates it, and deletes it if it is empty at the end.

    The kernel releases the lock when the process ends in any way. Buckets have no
    locks: nothing is held there.

    Raises:
      UserError: another process holds it, or it cannot be written.
    """
    if storage.in_bucket(workdir):
        yield
        return
    folder = pathlib.Path(workdir)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = filelock.FileLock(folder / NAME, timeout=0)
    try:
        _acquire(lock, folder)
        yield
    finally:
        if lock.is_locked:
            (folder / NAME).unlink(missing_ok=True)
            lock.release()
        for path in made:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def _acquire(lock: filelock.BaseFileLock, folder: pathlib.Path) -> None:
    """Takes the lock, and writes to its file who holds it."""
    holder = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        # Without flock, filelock writes a record of its own.
        if isinstance(lock, filelock.UnixFileLock):
            since = datetime.now(UTC).isoformat(timespec="seconds")
            me = f"process {os.getpid()} on host {platform.node()}"
            (folder / NAME).write_text(f"{me} has been training there since {since}")
    except filelock.Timeout as error:
        with contextlib.suppress(OSError, ValueError):
            holder = (folder / NAME).read_text()
        if not holder.startswith("process "):
            holder = "another process is training there"
        raise UserError(
            f"--workdir={folder}: {holder}; stop it, wait until it ends, or use "
            "another --workdir"
        ) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"--workdir={folder}: not a folder") from error
    except OSError as error:
        raise UserError(f"--workdir={folder}: {error.strerror}") from error
