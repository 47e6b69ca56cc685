"""Paths in a file system or in a bucket (gs://BUCKET/..., s3://BUCKET/...).

A bucket cannot rename folders or append to objects: an object appears, whole, when its
writer closes it. Anything else is done in a local folder and copied.
"""

import contextlib
import errno
import glob
import importlib.util
import io
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import TextIO, TypeAlias

import fsspec
from etils import epath

from bert_jax.errors import UserError
from bert_jax.runtime import signals

Path: TypeAlias = pathlib.Path | epath.Path

_CLIENTS = {"gs://": "gcsfs", "s3://": "s3fs"}
# A full disk, a quota, a limit on a file's size.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def storage_path(text: str | os.PathLike[str]) -> Path:
    """Returns a name's path. Raises UserError if its bucket's client is missing."""
    if not in_bucket(text):
        return pathlib.Path(text)
    _set_up_client(os.fspath(text))
    return epath.Path(text)


def in_bucket(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is in a bucket."""
    return os.fspath(path).startswith(tuple(_CLIENTS))


def check_path(flag: str, text: str) -> None:
    """Raises UserError if a path cannot be used here."""
    if in_bucket(text) and text.partition("://")[2].strip("/"):
        _set_up_client(text)
    elif "://" in text:
        raise UserError(
            f"{flag}={text}: a folder, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER is "
            "required (the Hub's names are hf:OWNER/NAME); mount other storage and "
            "name the mounted folder"
        )


def _set_up_client(text: str) -> None:
    client = _CLIENTS[text[:5]]
    if importlib.util.find_spec(client) is None:
        raise UserError(f"{text}: buckets need a client: pip install {client}")
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it raises its errors too
    # An installed TensorFlow may lack support for Google's storage.
    os.environ.setdefault("EPATH_USE_TF", "false")
    # Otherwise a request to another service looks up the kind of each bucket.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # TensorStore and other processes create and delete objects too.
    for name in ("gcs", "s3"):
        fsspec.config.conf.setdefault(name, {}).setdefault("use_listings_cache", False)


def list_matching(pattern: str) -> dict[str, tuple[int, int | str]]:
    """Finds the files that match a pattern, sorted by name. `**` matches any folders.

    Each has its size and its time (ns) or version, which change when the file does.
    """
    if in_bucket(pattern):
        client, _ = fsspec.url_to_fs(pattern)
        files = sorted(client.glob(pattern, detail=True).items())
        named = [(pattern[:5] + key, x) for key, x in files if x["type"] == "file"]
        return {
            name: (x["size"], x.get("generation") or x.get("ETag", ""))
            for name, x in named
        }
    names = filter(os.path.isfile, sorted(glob.glob(pattern, recursive=True)))
    stats = [(name, os.stat(name)) for name in names]
    return {name: (x.st_size, x.st_mtime_ns) for name, x in stats}


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a file for reading bytes."""
    with path.open("rb") as file:
        # A bucket's file sends one request per line.
        yield io.BufferedReader(file, 1 << 20) if in_bucket(path) else file


def absolute_path(path: Path) -> Path:
    """Returns the absolute path."""
    return path if in_bucket(path) else path.absolute()


def split_checkpoint_path(path: Path, name: str) -> tuple[Path, int | None]:
    """Returns HOME and the number of HOME/`name`/NUMBER, or any other path and None.

    A folder with its own config.json counts as any other path, whatever its name.
    """
    home = path.parent.parent
    is_named = path.name.isdecimal() and path.parent.name == name
    has_config = [(folder / "config.json").exists() for folder in (home, path)]
    is_checkpoint = is_named and has_config == [True, False]
    return (home, int(path.name)) if is_checkpoint else (path, None)


def move_folder(folder: Path, target: Path) -> None:
    """Moves a folder and replaces an existing `target`, in a bucket file by file."""
    epath.Path(target).rmtree(missing_ok=True)
    make_folder(target.parent)
    client, _ = fsspec.url_to_fs(str(target))
    client.mv(str(folder), str(target), recursive=True)


def output_path(text: str, flag: str = "--output") -> Path:
    """Returns the path of a file to write. Raises UserError if it cannot be one."""
    path = storage_path(text)
    is_new = not os.path.lexists(path) and (in_bucket(path) or path.parent.is_dir())
    if not (path.is_file() or is_new):
        raise UserError(f"{flag}={text}: must be a file in an existing folder")
    return path


@contextlib.contextmanager
def name_full_disk(path: object) -> Iterator[None]:
    """Adds the file name to a full disk's error, because the system does not."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def temporary_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields an empty folder next to `target`, to be moved there. Else deletes it."""
    with (
        tempfile.TemporaryDirectory(
            prefix=".bert_jax.", dir=target.parent, ignore_cleanup_errors=True
        ) as home,
        signals.clean_up_on_signal(lambda: shutil.rmtree(home, ignore_errors=True)),
    ):
        (new := pathlib.Path(home, "new")).mkdir()  # with the user's permissions
        yield new


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[TextIO]:
    """Yields a file to write. Replaces `path` with it at the end. Follows links."""
    if in_bucket(path):
        text = io.StringIO()
        yield text
        path.write_text(text.getvalue(), encoding="utf-8")
        return
    target = pathlib.Path(os.path.realpath(path))
    with temporary_folder(target) as folder:
        with (
            name_full_disk(target),
            (folder / "file").open("w", encoding="utf-8") as file,
        ):
            yield file
        (folder / "file").replace(target)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file completely or not at all. Makes its folders."""
    encoded = content.encode() if isinstance(content, str) else content
    if in_bucket(path):
        path.write_bytes(encoded)
        return
    make_folder(path.parent)
    with replace_file(path) as file:
        file.buffer.write(encoded)


def make_folder(folder: Path) -> None:
    """Makes a folder and its parents if they are missing."""
    if not in_bucket(folder):
        folder.mkdir(parents=True, exist_ok=True)


def upload_folder(folder: pathlib.Path, target: Path, last: str) -> None:
    """Copies a folder's files. The file `last` comes last and marks completion."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix() for path in paths} - {last}
    for name in (*sorted(names), last):
        epath.Path(folder / name).copy(target / name, overwrite=True)
