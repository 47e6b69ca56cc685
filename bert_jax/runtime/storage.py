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
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO, TypeAlias

from etils import epath

from bert_jax.errors import UserError
from bert_jax.runtime import temporary

Path: TypeAlias = pathlib.Path | epath.Path

_CLIENTS = {"gs://": "gcsfs", "s3://": "s3fs"}
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
    return os.fspath(place).startswith(tuple(_CLIENTS))


def check(flag: str, text: str) -> None:
    """Raises UserError if a path cannot be used here."""
    if text.startswith("hf://"):
        raise UserError(f"{flag}={text}: the Hub's names are hf:OWNER/NAME, without //")
    if in_bucket(text) and text.partition("://")[2].strip("/"):
        _make_ready(f"{flag}={text}", text[:5])
    elif "://" in text:
        raise UserError(
            f"{flag}={text}: a folder, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER is "
            "required; mount other storage and name the mounted folder"
        )


def _make_ready(place: str, scheme: str = "") -> None:
    """Sets up the libraries before their first use.

    Args:
      place: for the error if a library is missing.
      scheme: gs:// or s3://; empty: that of `place`.
    """
    client = _CLIENTS[scheme or place[:5]]
    if importlib.util.find_spec(client) is None:
        raise UserError(f"{place}: buckets need a client: pip install {client}")
    import fsspec

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it raises what it logs
    # An installed TensorFlow may lack support for Google's storage.
    os.environ.setdefault("EPATH_USE_TF", "false")
    # Else a request to another service asks for the kind of each bucket.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # TensorStore and other processes create and delete objects too.
    for name in ("gcs", "s3"):
        fsspec.config.conf.setdefault(name, {}).setdefault("use_listings_cache", False)


def is_client_error(error: BaseException) -> bool:
    """Whether a bucket's client raised this: no such bucket, no rights, no network."""
    if isinstance(error, OSError):
        return error.errno is None  # the operating system's have a number
    libraries = ("gcsfs", "google", "aiohttp", "botocore")
    return type(error).__module__.partition(".")[0] in libraries


class StoredFile(NamedTuple):
    """A file that matches a pattern."""

    size: int  # bytes
    version: int | str  # the time of the last change (ns), or a bucket's version


def find(pattern: str) -> dict[str, StoredFile]:
    """The files that match a pattern, sorted by name; `**` matches any folders."""
    if not in_bucket(pattern):
        names = filter(os.path.isfile, sorted(glob.glob(pattern, recursive=True)))
        stats = [(name, os.stat(name)) for name in names]
        return {
            name: StoredFile(about.st_size, about.st_mtime_ns) for name, about in stats
        }
    files = {}
    for key, about in sorted(_client(pattern).glob(pattern, detail=True).items()):
        if about["type"] == "file":
            name = pattern[:5] + key
            version = about.get("generation") or about.get("ETag", "")
            files[name] = StoredFile(about["size"], version)
    return files


def require_file(place: Path) -> None:
    """Raises OSError for a pipe or a device: files are read more than once."""
    if in_bucket(place) or not place.exists() or place.is_file() or place.is_dir():
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
        _client(target).mv(str(folder), str(target), recursive=True)
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
    is_new = not place.exists() and (in_bucket(place) or place.parent.is_dir())
    if not (place.is_file() or is_new) or (is_new and os.path.islink(place)):
        raise UserError(f"{flag}={text}: must be a file in an existing folder")
    return place


@contextlib.contextmanager
def replacing(place: Path) -> Iterator[TextIO]:
    """Yields a file to write; replaces `place` with it at the end. Follows links."""
    if in_bucket(place):
        text = io.StringIO()
        yield text
        place.write_text(text.getvalue(), encoding="utf-8")
        return
    with temporary.file(link_target(place)) as file:
        yield file


def link_target(place: Path) -> pathlib.Path:
    """Returns the file to write: a link's target, so that the link stays."""
    return pathlib.Path(os.path.realpath(place))


def write_atomically(place: Path, content: str | bytes) -> None:
    """Writes a file completely or not at all; makes its folders."""
    encoded = content.encode() if isinstance(content, str) else content
    make_folder(place.parent)
    if in_bucket(place):
        place.write_bytes(encoded)
        return
    with temporary.file(pathlib.Path(place)) as file:
        file.buffer.write(encoded)


def make_folder(folder: Path) -> None:
    """Makes a folder and its parents if they are missing."""
    if not in_bucket(folder):
        folder.mkdir(parents=True, exist_ok=True)


def upload(folder: pathlib.Path, target: Path, last: str) -> None:
    """Copies a folder's files; the file `last` comes last and marks completion."""
    names = {path.name for path in folder.iterdir()} - {last}
    for name in (*sorted(names), last):
        epath.Path(folder / name).copy(target / name, overwrite=True)


def _client(place: str | os.PathLike[str]) -> Any:
    import fsspec

    return fsspec.url_to_fs(os.fspath(place))[0]
