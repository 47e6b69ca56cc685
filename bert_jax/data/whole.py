"""Folders that are there whole or not at all, named after what shaped them."""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import storage, temporary


def fingerprint(identity: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits that another identity does not give."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_whole(folder: storage.Path, last: str) -> bool:
    """Whether it is all there; in a bucket `last` tells, the file copied last."""
    return (folder / last if storage.in_bucket(folder) else folder).exists()


@contextlib.contextmanager
def made_whole(folder: storage.Path, last: str) -> Iterator[Path]:
    """Gives a temporary folder that becomes `folder` in the end, or vanishes.

    Where another process was faster, its result stays: the two are the same.
    """
    if storage.in_bucket(folder):
        with temporary.folder(Path(tempfile.gettempdir()) / "prepared") as here:
            try:
                yield here
            except OSError as error:
                raise UserError(
                    f"{here}: cannot write the prepared data, which is copied to "
                    f"{folder} then ({error.strerror or error}); free some space, or "
                    "set TMPDIR to another folder"
                ) from error
            storage.upload(here, folder, last)
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary.folder(Path(folder)) as new:
            yield new
            if not folder.exists():
                try:
                    new.rename(folder)
                except OSError:
                    if not folder.exists():
                        raise
    except OSError as error:
        raise UserError(
            f"{folder.parent}: cannot write the prepared data "
            f"({error.strerror or error}); free some space or set corpus.data_dir"
        ) from error
