"""Rows of JSON lines, read in windows; and the output's file."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from bert_jax.data.tables import ANY, Wanted
from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage, untrusted
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
    lines: Iterable[Line],
    parse: Callable[[Row], Any],
    size: int,
    characters: int = CHARACTERS,
    whole: bool = False,
) -> Iterator[tuple[Read, bool]]:
    """Yields up to WINDOW batches of rows, and whether they are the last.

    Args:
      lines: place and text of each row.
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
            rows.append(_row(*line, parse))
            count += len(line[1])
            long = count > characters and len(rows) >= size
            if long or len(rows) == WINDOW * size:
                yield rows, False
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
def lines(source: str, wanted: Wanted = ANY) -> Iterator[Iterable[Line]]:
    """Yields (place, JSON) for each row.

    Args:
      source: JSON lines, or a file of `row_files.reader`; `-`: standard input.
      wanted: the columns of a table; by number: it has no header.
    """

    def numbered(file: Iterable[bytes], name: str) -> Iterator[Line]:
        for number, line in enumerate(file, start=1):
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


@contextlib.contextmanager
def output(target: str) -> Iterator[TextIO]:
    """Yields a file that replaces `target` at the end, or standard output."""
    if not processes.is_first():  # the others compute, but write nothing
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    if target == "-":
        with storage.naming("standard output"):
            yield sys.stdout
        return
    with storage.replacing(storage.output(target)) as file:
        yield file
