"""Reads records with named columns: CSV, TSV, JSON lines and TFDS data sets.

    NAME.csv    commas, fields quoted as in RFC 4180; they may contain line breaks
    NAME.tsv    tabs, no quoting: a quote is a normal character (as in GLUE)
    NAME.jsonl  one object per line
    tfds:NAME:SPLIT

CSV and TSV start with a header of column names. `.gz` may follow a file's name. Empty
lines are skipped, except in a TSV of one column, where they are empty texts.
"""

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from bert_jax.data import tfds_source
from bert_jax.data.lines import read_lines
from bert_jax.errors import UserError
from bert_jax.runtime import outside


class Record(NamedTuple):
    """One record; its fields are strings in CSV and TSV, otherwise any JSON value."""

    where: str  # the file and the record's first line (TFDS: its number from 1)
    fields: dict[str, Any]


def read_table(source: str, columns: Sequence[str]) -> list[Record]:
    """Reads all records of a file or of a TFDS split, in order.

    Class labels of TFDS become their names; -1, no label, becomes None.

    Args:
      source: a file, whose ending names its format, or tfds:NAME:SPLIT.
      columns: required columns.

    Raises:
      UserError: a file cannot be read or has an unknown ending; a column is missing; a
        record has too few or too many fields, or unpaired quotes; there are no records.
    """
    records = []
    for where, fields in read_rows(source):
        for column in columns:
            if column not in fields:
                raise UserError(
                    f"{where}: no column {column!r}; there are: {', '.join(fields)}"
                )
        records.append(Record(where, fields))
    if not records:
        raise UserError(f"{source}: has no records; name another source")
    return records


def read_rows(source: str) -> Iterator[Record]:
    """Reads records one by one, as `read_table`; there may be none."""
    for number, fields in _reader(source)(source):
        yield Record(f"{source}:{number}", fields)


def as_text(value: Any, where: str, column: str) -> str:
    """Returns a field that must be text.

    Raises:
      UserError: it is not a string, or has half of a surrogate pair (only from JSON).
    """
    if not isinstance(value, str):
        raise UserError(f"{where}: {column!r} is {value!r:.60}; it must be a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        half = value[error.start]
        raise UserError(
            f"{where}: {column!r} has {half!a}, half of a surrogate pair; write the "
            "character itself"
        ) from error
    return value


Numbered = Iterator[tuple[int, dict[str, Any]]]


def _reader(source: str) -> Callable[[str], Numbered]:
    if source.startswith("tfds:"):
        return _read_tfds
    for ending, reader in _READERS.items():
        if source.removesuffix(".gz").endswith(ending):
            return reader
    raise UserError(
        f"{source}: unknown format; the name must end in .csv, .tsv or .jsonl "
        "(.gz may follow), or be tfds:NAME:SPLIT"
    )


def _read_csv(path: str) -> Numbered:
    csv.field_size_limit(sys.maxsize)  # 131,072 characters otherwise
    lines = (f"{line}\n" for _, line in read_lines(path))
    rows = csv.reader(lines, strict=True)
    begin = 1
    header: list[str] = []
    try:
        for row in rows:
            if header and row:
                yield begin, _fields(f"{path}:{begin}", header, row)
            header = header or _header(path, row)
            begin = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{begin}: the record that starts here is not CSV ({error}): pair "
            'its quotes, and write a quote inside a quoted field as ""'
        ) from error


def _read_tsv(path: str) -> Numbered:
    header: list[str] = []
    for number, line in read_lines(path):
        row = line.split("\t")
        if not header:
            header = _header(path, row)
        elif line or len(header) == 1:
            yield number, _fields(f"{path}:{number}", header, row)


def _header(path: str, row: list[str]) -> list[str]:
    doubled = sorted({name for name in row if name and row.count(name) > 1})
    if doubled:
        raise UserError(
            f"{path}:1: the header has {doubled[0]!r} twice; rename one of the columns"
        )
    return row


def _fields(where: str, header: list[str], row: list[str]) -> dict[str, str]:
    if len(row) != len(header):
        raise UserError(
            f"{where}: has {len(row)} fields, but the header names {len(header)}; "
            "write as many"
        )
    return dict(zip(header, row, strict=True))


def _read_json_lines(path: str) -> Numbered:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        fields = outside.parse(line, f"{path}:{number}")
        if not isinstance(fields, dict):
            raise UserError(f"{path}:{number}: not a JSON object; write one per line")
        yield number, fields


_READERS = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_json_lines}


def _read_tfds(source: str) -> Numbered:
    _, name, split = [*source.split(":", 2), ""][:3]
    if not name or not split:
        raise UserError(
            f"{source}: write tfds:NAME:SPLIT, such as tfds:imdb_reviews:train"
        )
    found = tfds_source.prepared(name)
    try:
        examples = tfds_source.examples(name, found, split)
        for number, example in enumerate(examples, 1):
            yield (
                number,
                {k: _plain(found.info.features[k], v) for k, v in example.items()},
            )
    except (ValueError, KeyError) as error:
        raise UserError(
            f"{source}: no such split; there are: {', '.join(found.info.splits)}"
        ) from error


def _plain(feature: Any, value: Any) -> Any:
    """Converts a TFDS value to a JSON value."""
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(None, item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
