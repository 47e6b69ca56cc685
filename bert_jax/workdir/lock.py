"""Lets one process at a time train in a work directory."""

import contextlib
import pathlib
from collections.abc import Iterator

import filelock

from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path


@contextlib.contextmanager
def lock_workdir(workdir: Path) -> Iterator[None]:
    """Holds the work directory, which it creates, and deletes if it stays empty. Raises
    UserError if another process holds it. Buckets have no locks."""
    if storage.in_bucket(workdir):
        yield
        return
    folder = pathlib.Path(workdir)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=0):
            try:
                yield
            finally:
                (folder / ".lock").unlink(missing_ok=True)
    except filelock.Timeout as error:
        why = "another process is training there; wait for it, or name another folder"
        raise UserError(f"--workdir={folder}: {why}") from error
    finally:
        for path in made:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
