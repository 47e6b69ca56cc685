"""Places: folders of a file system, and of a bucket (gs://BUCKET/...).

A bucket has no folders to make or to rename, and nothing is appended to an object: it
is there, whole, once its writer has closed it. What needs more is done in a folder of
this machine and copied.
"""

import base64
import contextlib
import errno
import glob
import importlib.util
import io
import logging
import os
import pathlib
import stat
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO, TypeAlias

from etils import epath

from bert_jax.errors import UserError
from bert_jax.runtime import temporary

Path: TypeAlias = pathlib.Path | epath.Path

_BUCKETS = "gs://"
_CLIENTS = ("gcsfs", "google.auth", "google.api_core", "google.cloud", "aiohttp")
_AHEAD = 1 << 20  # bytes


def path(text: str | os.PathLike[str]) -> Path:
    """The place of this name.

    Raises:
      UserError: it is in a bucket, and the client for that is not installed.
    """
    if not in_bucket(text):
        return pathlib.Path(text)
    _make_ready(os.fspath(text))
    return epath.Path(text)


def in_bucket(place: str | os.PathLike[str]) -> bool:
    """Whether it is an object, or a folder of objects."""
    return os.fspath(place).startswith(_BUCKETS)


def check(flag: str, text: str) -> None:
    """Raises UserError where a place is of no kind that is known here."""
    full = text if in_bucket(text) else os.path.abspath(text)
    try:
        full.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{flag}={text!a}: the name {full!a} is not UTF-8, which the libraries "
            "that read and write there need; rename it"
        ) from error
    if "://" not in text:  # s3://bucket would become a folder named s3:
        return
    if not in_bucket(text) or not text.removeprefix(_BUCKETS).strip("/"):
        raise UserError(
            f"{flag}={text}: a folder, or {_BUCKETS}BUCKET/FOLDER, is required; mount "
            "other storage, and name that folder"
        )
    _make_ready(f"{flag}={text}")


def _make_ready(place: str) -> None:
    """Sets the libraries up, before the first of them is asked.

    Args:
      place: what the error names where a library is missing.
    """
    if importlib.util.find_spec("gcsfs") is None:
        raise UserError(f"{place}: buckets need the extra: pip install '.[gcs]'")
    import fsspec

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # what it tells it raises too
    # TensorFlow, where it is installed, may have been built without Google's storage.
    os.environ.setdefault("EPATH_USE_TF", "false")
    # Of two file systems of gcsfs, the plain one: the other asks another service, by
    # gRPC, of what kind each bucket is. Zonal buckets want it.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # Objects come and go by other hands too: TensorStore's, other processes'.
    fsspec.config.conf.setdefault("gcs", {}).setdefault("use_listings_cache", False)


def is_trouble(error: BaseException) -> bool:
    """Whether a bucket's client raised this: no such bucket, no rights, no network."""
    # What they raise has no class in common, and may be as plain as an OSError.
    return any(
        frame.f_globals.get("__name__", "").startswith(_CLIENTS)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


class Found(NamedTuple):
    """A file that matches a pattern."""

    # Full name, size, and time (ns) or generation: what tells one state of the file
    # from another, without reading it.
    state: list[str | int]
    md5: str | None  # of its content, in hexadecimal, where the storage knows it


def find(pattern: str) -> dict[str, Found]:
    """The files of a pattern, in the order of their names; `**` is any folder."""
    if in_bucket(pattern):
        found = _client().glob(pattern, detail=True).items()
        return {
            _BUCKETS + name: Found(
                [_BUCKETS + name, about["size"], about["generation"]],
                # Objects that were composed of others have none.
                base64.b64decode(about["md5Hash"]).hex()
                if "md5Hash" in about
                else None,
            )
            for name, about in sorted(found)
            if about["type"] == "file"
        }
    names = filter(os.path.isfile, sorted(glob.glob(pattern, recursive=True)))
    stats = [(name, os.stat(name)) for name in names]
    return {
        name: Found([os.path.abspath(name), about.st_size, about.st_mtime_ns], None)
        for name, about in stats
    }


def require_file(place: Path) -> None:
    """Raises OSError for a pipe or a device: data are read more than once."""
    if in_bucket(place):
        return
    try:
        mode = os.stat(place).st_mode  # once: the file may go away between two looks
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    reason = "a pipe or a device, which is read once; write it to a file, and name that"
    raise OSError(errno.EINVAL, reason, str(place))


@contextlib.contextmanager
def reading(place: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file."""
    with place.open("rb") as file:
        # A bucket's file asks for each line anew.
        yield io.BufferedReader(file, _AHEAD) if in_bucket(place) else file


def absolute(place: Path) -> Path:
    """The place by its full name."""
    return place if in_bucket(place) else place.absolute()


def move(folder: Path, target: Path) -> None:
    """Moves a folder, in place of an earlier `target`; in a bucket, file by file."""
    epath.Path(target).rmtree(missing_ok=True)
    if in_bucket(target):
        _client().mv(str(folder), str(target), recursive=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)


def output(text: str) -> Path:
    """The place of a file to write.

    Raises:
      UserError: nothing can be written there.
    """
    place = path(text)
    if in_bucket(place):
        fits = not place.is_dir()
    else:
        target = _target(place)
        fits = target.parent.is_dir() and not (target.is_dir() or target.is_symlink())
    if not fits:
        raise UserError(f"--output={text}: not a file in a folder that exists")
    return place


def put(place: Path, content: bytes) -> None:
    """Writes an object of a bucket.

    Raises:
      OSError: whatever it was that failed.
    """
    try:
        place.write_bytes(content)
    except Exception as error:  # a client's: they share no narrower class
        if not is_trouble(error):
            raise
        text = " ".join(str(error).split())
        raise OSError(errno.EIO, f"{type(error).__name__}: {text}", str(place)) from (
            error
        )


@contextlib.contextmanager
def replacing(place: Path) -> Iterator[TextIO]:
    """A file to write that takes the place of another once it is whole.

    Links are followed. A pipe or a device is written to as it is.
    """
    if in_bucket(place):
        text = io.StringIO()
        yield text
        put(place, text.getvalue().encode())
        return
    if _is_stream(place):
        # Appended: what is a file after all (/dev/stdout, redirected) is not emptied.
        try:
            with place.open("a", encoding="utf-8") as file:
                yield file
        except BrokenPipeError as error:  # its reader has gone
            error.filename = error.filename or str(place)
            raise
        return
    with temporary.file(_target(place)) as file:
        yield file


def _target(place: Path) -> pathlib.Path:
    """What is written in the place's stead: where a link leads, which stays."""
    return pathlib.Path(os.path.realpath(place))


def _is_stream(place: Path) -> bool:
    """Whether writers go through it (a pipe, a device, an open file of this process)
    and nothing may be put in its stead."""
    if place.exists() and not place.is_file():
        return True
    link = os.path.abspath(place)
    for _ in range(40):  # as many links as Linux follows
        if os.path.realpath(os.path.dirname(link)).startswith("/proc/"):
            return True
        if not os.path.islink(link):
            break
        link = os.path.join(os.path.dirname(link), os.readlink(link))
    return False


def write_atomically(place: Path, text: str) -> None:
    """Writes a file so that it is there whole or not at all, and its folders."""
    make_folder(place.parent)
    if in_bucket(place):
        put(place, text.encode())
        return
    # Unlike `replacing`: a pipe or a link there is none of this program's.
    with temporary.file(pathlib.Path(place)) as file:
        file.write(text)


def make_folder(folder: Path) -> None:
    """Makes a folder, with those above it, where it is missing."""
    if not in_bucket(folder):
        folder.mkdir(parents=True, exist_ok=True)


def require_bucket(place: Path) -> None:
    """Asks for the bucket, as Orbax does when it drops a checkpoint, but at once.

    Raises:
      Exception: see `is_trouble`; no right to see the bucket, no project.
    """
    if in_bucket(place):
        from google.cloud import storage

        storage.Client().get_bucket(os.fspath(place).split("/")[2])


def upload(folder: pathlib.Path, target: Path, last: str) -> None:
    """Copies a folder's files; `last`, the one whose presence says that all are."""
    names = {path.name for path in folder.iterdir()} - {last}
    for name in (*sorted(names), last):
        epath.Path(folder / name).copy(target / name, overwrite=True)


def _client() -> Any:
    import fsspec

    return fsspec.filesystem("gcs")
