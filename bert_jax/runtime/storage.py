"""Paths in a file system or in a bucket (gs://BUCKET/...).

A bucket cannot make or rename folders or append to objects: an object appears, whole,
when its writer closes it. Anything else is done in a local folder and copied.
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
    """The path of this name.

    Raises:
      UserError: it is in a bucket, and the client for buckets is not installed.
    """
    if not in_bucket(text):
        return pathlib.Path(text)
    _make_ready(os.fspath(text))
    return epath.Path(text)


def in_bucket(place: str | os.PathLike[str]) -> bool:
    """Whether a path is in a bucket."""
    return os.fspath(place).startswith(_BUCKETS)


def check(flag: str, text: str) -> None:
    """Raises UserError if a path cannot be used here."""
    full = text if in_bucket(text) else os.path.abspath(text)
    try:
        full.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{flag}={text!a}: the name {full!a} is not UTF-8, but the libraries that "
            "read and write there require it; rename it"
        ) from error
    if "://" not in text:  # s3://bucket would become a folder named s3:
        return
    if text.startswith("hf://"):
        raise UserError(f"{flag}={text}: the Hub's names are hf:OWNER/NAME, without //")
    if not in_bucket(text) or not text.removeprefix(_BUCKETS).strip("/"):
        raise UserError(
            f"{flag}={text}: a folder or {_BUCKETS}BUCKET/FOLDER is required; mount "
            "other storage and name the mounted folder"
        )
    _make_ready(f"{flag}={text}")


def _make_ready(place: str) -> None:
    """Sets up the libraries before their first use.

    Args:
      place: for the error if a library is missing.
    """
    if importlib.util.find_spec("gcsfs") is None:
        raise UserError(f"{place}: buckets need the extra: pip install '.[gcs]'")
    import fsspec

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it raises what it logs
    # An installed TensorFlow may lack support for Google's storage.
    os.environ.setdefault("EPATH_USE_TF", "false")
    # Choose gcsfs's plain file system: the other one, for zonal buckets, makes a gRPC
    # request to another service for the kind of each bucket.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # TensorStore and other processes create and delete objects too.
    fsspec.config.conf.setdefault("gcs", {}).setdefault("use_listings_cache", False)


def is_client_error(error: BaseException) -> bool:
    """Whether a bucket's client raised this: no such bucket, no rights, no network."""
    # Their errors have no common class; some are plain OSErrors.
    return any(
        frame.f_globals.get("__name__", "").startswith(_CLIENTS)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


class StoredFile(NamedTuple):
    """A file that matches a pattern."""

    # Full name, size, and time (ns) or generation: changes whenever the file does.
    state: list[str | int]
    md5: str | None  # of its content, in hexadecimal, if the storage knows it


def find(pattern: str) -> dict[str, StoredFile]:
    """The files that match a pattern, sorted by name; `**` matches any folders."""
    if in_bucket(pattern):
        matches = _client().glob(pattern, detail=True).items()
        return {
            _BUCKETS + name: StoredFile(
                [_BUCKETS + name, about["size"], about["generation"]],
                # Composite objects have no MD5.
                base64.b64decode(about["md5Hash"]).hex()
                if "md5Hash" in about
                else None,
            )
            for name, about in sorted(matches)
            if about["type"] == "file"
        }
    names = filter(os.path.isfile, sorted(glob.glob(pattern, recursive=True)))
    stats = [(name, os.stat(name)) for name in names]
    return {
        name: StoredFile(
            [os.path.abspath(name), about.st_size, about.st_mtime_ns], None
        )
        for name, about in stats
    }


def require_file(place: Path) -> None:
    """Raises OSError for a pipe or a device: files are read more than once."""
    if in_bucket(place):
        return
    try:
        mode = os.stat(place).st_mode  # one call: the file may vanish between two
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    reason = "a pipe or a device can be read only once; copy it to a file and name that"
    raise OSError(errno.EINVAL, reason, str(place))


@contextlib.contextmanager
def reading(place: Path) -> Iterator[io.BufferedReader]:
    """Opens a file for reading bytes."""
    with place.open("rb") as file:
        # A bucket's file sends one request per line.
        yield io.BufferedReader(file, _AHEAD) if in_bucket(place) else file


def absolute(place: Path) -> Path:
    """The absolute path."""
    return place if in_bucket(place) else place.absolute()


def split_checkpoint_path(place: Path, name: str) -> tuple[Path, int | None]:
    """HOME and the number of HOME/`name`/NUMBER; any other path, and None.

    A folder with a config.json of its own is any other path, whatever its name.
    """
    if place.name.isdecimal() and place.parent.name == name:
        home, config_file = place.parent.parent, place / "config.json"
        if (home / config_file.name).exists() and not config_file.exists():
            return home, int(place.name)
    return place, None


def move(folder: Path, target: Path) -> None:
    """Moves a folder and replaces an existing `target`; in a bucket, file by file."""
    epath.Path(target).rmtree(missing_ok=True)
    if in_bucket(target):
        _client().mv(str(folder), str(target), recursive=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)


def output(text: str, flag: str = "--output") -> Path:
    """The path of a file to write.

    Args:
      flag: that names the file.

    Raises:
      UserError: it is not a file in an existing folder.
    """
    place = path(text)
    if in_bucket(place):
        fits = not place.is_dir()
    else:
        target = link_target(place)
        fits = target.parent.is_dir() and not (target.is_dir() or target.is_symlink())
    if not fits:
        raise UserError(f"{flag}={text}: must be a file in an existing folder")
    return place


def put(place: Path, content: bytes) -> None:
    """Writes an object of a bucket.

    Raises:
      OSError: it cannot be written, for any reason.
    """
    try:
        place.write_bytes(content)
    except Exception as error:  # clients' errors share no narrower class
        if not is_client_error(error):
            raise
        text = " ".join(str(error).split())
        raise OSError(errno.EIO, f"{type(error).__name__}: {text}", str(place)) from (
            error
        )


@contextlib.contextmanager
def replacing(place: Path) -> Iterator[TextIO]:
    """Yields a file to write; replaces `place` with it at the end.

    Follows links. Writes directly to a pipe or a device.
    """
    if in_bucket(place):
        text = io.StringIO()
        yield text
        put(place, text.getvalue().encode())
        return
    if is_stream(place):
        # Appends, so as not to empty a file behind it (/dev/stdout, redirected).
        try:
            with temporary.naming(place), place.open("a", encoding="utf-8") as file:
                yield file
        except BrokenPipeError as error:  # the reader closed it
            error.filename = error.filename or str(place)
            raise
        return
    with temporary.file(link_target(place)) as file:
        yield file


def link_target(place: Path) -> pathlib.Path:
    """The file to write: a link's target, so that the link stays."""
    return pathlib.Path(os.path.realpath(place))


def is_stream(place: Path) -> bool:
    """Whether it is a pipe, a device or an open file of this process, which must be
    written to, not replaced."""
    if place.exists() and not place.is_file():
        return True
    link = os.path.abspath(place)
    for _ in range(40):  # Linux's limit on links
        if os.path.realpath(os.path.dirname(link)).startswith("/proc/"):
            return True
        if not os.path.islink(link):
            break
        link = os.path.join(os.path.dirname(link), os.readlink(link))
    return False


def write_atomically(place: Path, content: str | bytes) -> None:
    """Writes a file completely or not at all; makes its folders."""
    encoded = content.encode() if isinstance(content, str) else content
    make_folder(place.parent)
    if in_bucket(place):
        put(place, encoded)
        return
    # Replaces a pipe or a link, unlike `replacing`: this program made neither.
    with temporary.file(pathlib.Path(place)) as file:
        file.buffer.write(encoded)


def make_folder(folder: Path) -> None:
    """Makes a folder and its parents if they are missing."""
    if not in_bucket(folder):
        folder.mkdir(parents=True, exist_ok=True)


def require_bucket(place: Path) -> None:
    """Requests the bucket, as Orbax will when it deletes a checkpoint, to fail early.

    Raises:
      Exception: see `is_client_error`; no permission to see the bucket, no project.
    """
    if in_bucket(place):
        from google.cloud import storage

        storage.Client().get_bucket(os.fspath(place).split("/")[2])


def upload(folder: pathlib.Path, target: Path, last: str) -> None:
    """Copies a folder's files; the file `last` comes last and marks completion."""
    names = {path.name for path in folder.iterdir()} - {last}
    for name in (*sorted(names), last):
        epath.Path(folder / name).copy(target / name, overwrite=True)


def _client() -> Any:
    import fsspec

    return fsspec.filesystem("gcs")
