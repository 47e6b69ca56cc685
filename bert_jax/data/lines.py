"""Reading of the lines of a text file, used for every format."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import storage


def _zstandard(file: Any) -> Any:
    import pyarrow  # slow

    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file), "zstd")
    return io.BufferedReader(stream)


# How to decompress a file, by its ending.
COMPRESSED: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _zstandard,
}


def uncompressed_name(name: str) -> str:
    """Returns a file's name without the ending of its compression."""
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return name


def read_lines(
    path: str | storage.Path, *, may_be_empty: bool = False
) -> Iterator[tuple[int, str]]:
    """Yields line numbers from 1, and lines without their line breaks.

    Decompresses the endings of COMPRESSED. See also `decode_lines`.

    Raises:
      UserError: the file cannot be read, is empty or not UTF-8.
    """
    number = 0
    try:
        with storage.open_binary(storage.storage_path(path)) as file:
            ending = f".{str(path).rpartition('.')[2]}"
            content = COMPRESSED.get(ending, lambda file: file)(file)
            for number, line in decode_lines(content, str(path)):
                yield number, line
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:  # damaged
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({why})") from error
    if not number and not may_be_empty:
        raise UserError(f"{path}: the file is empty")


def decode_lines(file: Any, name: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of an open file of bytes, as `read_lines`, perhaps none.

    Splits at "\\n" only (U+2028 and U+0085 occur inside texts). Drops "\\r" before it
    and a byte order mark.

    Args:
      name: Name of the file, for errors.
    """
    for number, line in enumerate(file, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}:{number}: byte {error.start} of this line is not UTF-8; save "
                "the file as UTF-8"
            ) from error
        yield number, text.rstrip("\r\n")
