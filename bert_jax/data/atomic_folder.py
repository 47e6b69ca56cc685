"""Folders that appear only when complete, named after the settings behind them."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec

from bert_jax.runtime import storage


def folder_fingerprint(identity: Any) -> str:
    """Returns sixteen hexadecimal digits, unique to the identity."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def create_folder(folder: storage.Path, last: str) -> Iterator[Path]:
    """Yields a temporary folder, and renames it to `folder` at the end or deletes it.

    If another process was faster, its result stays: the two are equal.

    Args:
      folder: The folder. It is complete where it has the file `last`, which a bucket
        gets last.
      last: Name of a file.
    """
    in_bucket = storage.in_bucket(folder)
    target = Path(tempfile.gettempdir(), "prepared") if in_bucket else Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    with storage.name_full_disk(target), storage.temporary_folder(target) as new:
        yield new
        if in_bucket:
            storage.upload_folder(new, folder, last)
            return
        try:
            new.rename(folder)
        except OSError:
            if not folder.exists():
                raise


def local_copy(folder: storage.Path) -> Path:
    """Returns a folder of this machine with a finished folder's files.

    A bucket's are copied once, to `$XDG_CACHE_HOME/bert_jax` (in `~/.cache` if that is
    not set).
    """
    if not storage.in_bucket(folder):
        return Path(folder)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    target = Path(home, "bert_jax", "buckets", str(folder).partition("://")[2])
    if not target.exists():
        with create_folder(target, "") as new:
            client, _ = fsspec.url_to_fs(str(folder))
            client.get(f"{folder}/", f"{new}/", recursive=True)
    return target
