"""Rows of JSON lines, read in windows as the input comes; and the output's file."""

import contextlib
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from bert_jax.data.columns import ANY, Wanted
from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage, temporary, untrusted
from bert_jax.tasks import row_files
from bert_jax.tasks.row_files import Row

# Rows that are sorted by length together: so many batches, or at least one and so many
# characters of JSON.
WINDOW = 16
CHARACTERS = 1_000_000
_NAMED = 10  # fields of a row that an error names

Line = tuple[str, str]  # place and text
Read = list[tuple[Row, Any]]  # rows with what the task parsed


def windows(
    lines: Iterable[Line | None],
    parse: Callable[[Row], Any],
    size: int,
    characters: int = CHARACTERS,
    whole: bool = False,
) -> Iterator[tuple[Read, bool]]:
    """Yields up to WINDOW batches of rows, and whether the input pauses after them or
    ends.

    Args:
      lines: place and text of each row; None where the input pauses: the rows before
        it are answered at once.
      size: rows of a batch.
      characters: of the JSON of a window, if that is more than one batch.
      whole: Leave out a window that a wrong row cuts short.

    Raises:
      UserError: a row is wrong; the rows before it come first.
    """
    rows: Read = []
    count = 0
    try:
        for line in lines:
            if line is not None:
                rows.append(_row(*line, parse))
                count += len(line[1])
            long = count > characters and len(rows) >= size
            if line is None or long or len(rows) == WINDOW * size:
                yield rows, line is None
                rows, count = [], 0
    except UserError:
        yield [] if whole else rows, True
        raise
    yield rows, True


def _row(where: str, line: str, parse: Callable[[Row], Any]) -> tuple[Row, Any]:
    """An input line: its JSON object, and the task's parsed example."""
    row = untrusted.parse(line, where)
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is required")
    try:
        return row, parse(row)
    except ValueError as error:
        there = ", ".join(list(row)[:_NAMED]) or "none"
        raise UserError(f"{where}: {error}; the row's fields: {there:.200}") from error


@contextlib.contextmanager
def lines(source: str, wanted: Wanted = ANY) -> Iterator[Iterable[Line | None]]:
    """Yields (place, JSON) for each row, and None at a pause.

    Args:
      source: JSON lines, or a file of `row_files.reader`; `-`: standard input.
      wanted: the columns of a table; by number: it has no header.
    """

    def numbered(file: Any, name: str) -> Iterator[Line | None]:
        number = 0
        for line in _with_pauses(file):
            if line is None:
                yield None
                continue
            number += 1
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise UserError(f"{name}:{number}: not UTF-8: {error}") from error
            if text:
                yield f"{name}:{number}", text

    if source == "-":
        if sys.stdin is None:
            raise UserError("standard input is closed: name a file with --input=FILE")
        yield numbered(sys.stdin.buffer, "standard input")
        return
    if (rows := row_files.reader(source, wanted)) is not None:
        yield rows
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(storage.reading(storage.path(source)))
        except (FileNotFoundError, IsADirectoryError) as error:
            raise UserError(f"--input={source}: no such file") from error
        yield numbered(file, source)


def _with_pauses(file: Any) -> Iterator[bytes | None]:
    """Yields the lines of a file, and None where a terminal or pipe has no more yet."""
    # Where processes share the work, each must read the same rows at once.
    if processes.count() > 1 or not _may_pause(file):
        yield from file
        return
    parts: list[bytes] = []  # of a line that has not ended
    while True:
        if not select.select([file], [], [], 0)[0]:
            yield None
        chunk = os.read(file.fileno(), 1 << 16)
        parts.append(chunk)
        if not chunk or b"\n" in chunk:
            *lines, rest = b"".join(parts).split(b"\n")
            parts = [rest]
            yield from lines
        if not chunk:
            yield from parts
            return


def _may_pause(file: Any) -> bool:
    try:
        return not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:  # no file of the system's, as in a bucket
        return False


@contextlib.contextmanager
def output(target: str) -> Iterator[TextIO]:
    """Yields a file that replaces `target` at the end, or standard output."""
    if not processes.is_first():  # the others compute, but write nothing
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    if target == "-":
        with temporary.naming("standard output"):
            yield sys.stdout
        return
    with storage.replacing(storage.output(target)) as file:
        yield file
