"""Folders that appear only when complete, named after what shaped them."""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import storage


def fingerprint(identity: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits, unique to the identity."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_whole(folder: storage.Path, last: str) -> bool:
    """Whether a folder is complete; in a bucket: `last`, copied last, must exist."""
    return (folder / last if storage.in_bucket(folder) else folder).exists()


@contextlib.contextmanager
def made_whole(folder: storage.Path, last: str) -> Iterator[Path]:
    """Yields a temporary folder; renames it to `folder` at the end, or deletes it.

    If another process was faster, its result stays: the two are equal.
    """
    if storage.in_bucket(folder):
        with storage.temporary_folder(Path(tempfile.gettempdir(), "prepared")) as here:
            try:
                yield here
            except OSError as error:
                raise UserError(
                    f"{here}: cannot write the prepared data ({error.strerror or error}"
                    f"), which is then copied to {folder}; free some space, or set "
                    "TMPDIR to another folder"
                ) from error
            storage.upload(here, folder, last)
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with storage.temporary_folder(Path(folder)) as new:
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
            f"({error.strerror or error}); check the folder and the free space, or "
            "set corpus.data_dir"
        ) from error
