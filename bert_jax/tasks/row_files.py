"""Rows of `predict` and `extract`: JSON lines and other files, by their names.

in:   .csv, .tsv, .parquet, hf:, tfds: (data/tables.py), .txt (each line is a `text`,
      an empty one too), and any other file has JSON lines. They may be compressed.
out:  .csv, .tsv, and JSON lines
"""

import contextlib
import csv
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from bert_jax.data import tables
from bert_jax.data.lines import decode_lines, read_lines, uncompressed_name
from bert_jax.data.tables import ANY, BY_NAME, ColumnSpec, Record, Row
from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage

# Rows that are sorted by length together: this many batches, or at least one batch and
# this many characters.
WINDOW = 16
CHARACTERS = 1_000_000
_NAMED = 10  # fields of a row that an error names
_LABELS = ("label", "labels", "score", "tags", "answer")  # fields of answers

Read = list[tuple[Row, Any]]  # rows with the examples that the task parsed


def input_rows(source: str, wanted: ColumnSpec = ANY) -> Iterator[Record]:
    """Yields the rows of an input.

    Args:
      source: A file or a data set by name. `-` means JSON lines on standard input.
      wanted: Columns of a table. By number, it has no header. Its format holds but for
        .jsonl and .parquet.

    Raises:
      UserError: There is no such file. When read, see `data.tables.read_table`.
    """
    if source == "-":
        name = "standard input"
        lines = decode_lines(sys.stdin.buffer, name)
        return tables.json_rows(name, lines, finite=True)
    ending = uncompressed_name(source).rpartition(".")[2]
    form = ending if ending in ("jsonl", "parquet") else wanted.format or ending
    by_name = source.startswith(BY_NAME)
    if not by_name:
        place = storage.storage_path(source)
        if not place.exists() or place.is_dir():
            raise UserError(f"--input={source}: no such file")
    if by_name or form in ("csv", "tsv", "parquet"):
        return tables.read_rows(source, wanted._replace(format=form))
    lines = read_lines(source, may_be_empty=True)
    if form != "txt":
        return tables.json_rows(source, lines, finite=True)
    return (Record(f"{source}:{n}", {"text": x}) for n, x in lines)


def late_fields(source: str, target: str, wanted: ColumnSpec = ANY) -> list[str]:
    """Returns the fields of all rows of a file, if only they tell the columns of a
    table: if JSON lines are answered in one. Raises as `input_rows`."""
    place = storage.storage_path(source)
    if not target.endswith((".csv", ".tsv")) or not place.is_file():
        return []
    form = wanted.format or uncompressed_name(source).rpartition(".")[2]
    if form in ("csv", "tsv", "txt", "parquet"):
        return []
    rows = (flat_row(record.fields) for record in input_rows(source, wanted))
    return [*dict.fromkeys(itertools.chain.from_iterable(rows))]


def row_windows(
    records: Iterable[Record],
    parse: Callable[[Row], Any],
    size: int,
    characters: int = CHARACTERS,
) -> Iterator[Read]:
    """Yields up to WINDOW batches of rows at a time.

    Args:
      size: Rows of a batch.
      characters: Maximum characters of a window, if that is more than one batch.

    Raises:
      UserError: a row is wrong.
    """
    rows: Read = []
    count = 0
    for where, row in records:
        rows.append((row, parse_row(where, row, parse)))
        count += len(str(row))
        long = count > characters and len(rows) >= size
        if long or len(rows) == WINDOW * size:
            yield rows
            rows, count = [], 0
    yield rows


def parse_row(where: str, row: Row, parse: Callable[[Row], Any]) -> Any:
    """Returns `parse` of a row. Raises UserError for its ValueError."""
    try:
        return parse(row)
    except ValueError as error:
        there = ", ".join(list(row)[:_NAMED]) or "none"
        raise UserError(f"{where}: {error}; the row's fields: {there:.200}") from error


@contextlib.contextmanager
def open_output(target: str) -> Iterator[TextIO]:
    """Yields a file that replaces `target` at the end, or standard output."""
    if not processes.is_first():  # the others compute, but write nothing
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    if target == "-":
        with storage.name_full_disk("standard output"):
            yield sys.stdout
        return
    with storage.replace_file(storage.output_path(target)) as file:
        yield file


def row_writer(
    target: str, file: Any, columns: list[str] | None = None
) -> Callable[[Row], None]:
    """Returns a function that writes a row to an open file.

    It writes JSON, or a table with the first row's columns. In a table the fields of an
    object have a column each, NAME.FIELD, lists are JSON, and what a row lacks is an
    empty field. In TSV a tab or line break in a field becomes a space.

    Args:
      columns: Names of the columns of a table that is written already, or an empty
        list, which gets them.

    Raises (when it writes):
      UserError: a row has a column that the first lacks.

    Raises:
      UserError: the name has the ending of a format that is only read.
    """
    if uncompressed_name(target) != target or target.endswith(".parquet"):
        raise UserError(
            f"--output={target}: only .jsonl, .csv and .tsv are written, not compressed"
        )
    if not target.endswith((".csv", ".tsv")):
        return lambda row: file.write(_json(row) + "\n")

    def tabs(fields: Sequence[str]) -> None:
        cells = (" ".join(re.split("[\t\r\n]", field)) for field in fields)
        file.write("\t".join(cells) + "\n")

    def commas(fields: Sequence[str]) -> None:
        # Before Python 3.13 a carriage return alone is no reason to quote a field.
        returns = any("\r" in field for field in fields)
        (quoted if returns else table).writerow(fields)

    table = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    put = commas if target.endswith(".csv") else tabs
    columns = [] if columns is None else columns

    def write(row: Row) -> None:
        flat = flat_row(row)
        if not columns:
            columns.extend(flat)
            put(columns)
        if other := sorted(flat.keys() - set(columns)):
            raise UserError(
                f"--output={target}: not all rows have {other[0]!r}, so they make no "
                "table; write .jsonl"
            )
        put([_cell(flat.get(name)) for name in columns])

    return write


def answered_row(row: Row, answer: Row) -> dict[str, Any]:
    """Returns the row and its answer. See `kept_names`."""
    names = kept_names(row, answer)
    return {names[name]: value for name, value in row.items()} | answer


def kept_names(row: Iterable[str], answer: Row) -> dict[str, str]:
    """Returns the names of a row's fields next to its answer, by their names.

    A label of the row stays as `gold`. Another field that the answer has too, also as
    NAME.FIELD of a table, stays as `input_NAME`.
    """
    taken, names = {*answer, *flat_row(answer)}, [*row]
    kept: dict[str, str] = {}
    for name in names:
        new = name
        if name in taken:
            is_gold = name in _LABELS and "gold" not in {*names, *kept.values(), *taken}
            new = "gold" if is_gold else f"input_{name}"
            while new in names or new in kept.values():
                new = f"input_{new}"
        kept[name] = new
    return kept


def answered_frame(frame: Any, answers: Sequence[Row]) -> Any:
    """Returns a data frame (pandas, polars) or a table of Arrow with columns for the
    answers, one for each, and the same index. See `row_writer` and `kept_names`."""
    flat = [flat_row(answer) for answer in answers]
    names = dict.fromkeys(itertools.chain.from_iterable(flat))
    columns = {name: [row.get(name) for row in flat] for name in names}
    there = getattr(frame, "column_names", frame.columns)
    kept = kept_names(map(str, there), dict.fromkeys([*names, *answers[0]]))
    renamed = [x if kept[str(x)] == str(x) else kept[str(x)] for x in there]
    if hasattr(frame, "assign"):  # pandas
        frame = frame.copy()
        frame.columns = renamed
        return frame.assign(**columns)
    if hasattr(frame, "hstack"):  # polars
        return frame.rename(kept).hstack(type(frame)(columns))
    import pyarrow  # whose table it is

    frame = frame.rename_columns(renamed)
    for name, column in columns.items():
        frame = frame.append_column(name, pyarrow.array(column))
    return frame


def round_numbers(value: Any) -> Any:
    """Rounds the numbers of an answer to six digits: a float32 has not many more."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [round_numbers(each) for each in value]
    if isinstance(value, dict):
        return {name: round_numbers(each) for name, each in value.items()}
    return value


def flat_row(row: Mapping[str, Any]) -> Row:
    """Returns a row in which each field of an object is one, NAME.FIELD."""
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{field}": x for field, x in value.items()}
        else:
            flat[name] = value
    return flat


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)  # a date of parquet
