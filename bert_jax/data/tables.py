"""Records with named columns: CSV, TSV and JSON lines, and data sets of TFDS.

    NAME.csv    commas, fields quoted as in RFC 4180: they may hold line ends
    NAME.tsv    tabs, no quoting: a quote is a character like any other (as in GLUE)
    NAME.jsonl  an object a line
    tfds:NAME:SPLIT

The first two begin with a header of column names. `.gz` may follow a file's name. An
empty line is no record, but in a TSV of one column, where it is an empty text.
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
    """One record; its fields are strings in CSV and TSV, else whatever JSON holds."""

    where: str  # the file and the line it begins in (of TFDS, its number from 1)
    fields: dict[str, Any]


def read_table(source: str, columns: Sequence[str]) -> list[Record]:
    """Reads all records of a file or of a split of TFDS, in their order.

    A class label of TFDS is given by its name, and -1, which stands for none, as None.

    Args:
      source: the path of a file whose ending tells its kind, or tfds:NAME:SPLIT.
      columns: those that each record must have.

    Raises:
      UserError: a file cannot be read; it or its ending is of no known kind; a column
        is missing; a record has too few or too many fields, or its quotes do not pair;
        there is no record.
    """
    records = []
    for number, fields in _reader(source)(source):
        where = f"{source}:{number}"
        for column in columns:
            if column not in fields:
                raise UserError(
                    f"{where}: no column {column!r}; there are: {', '.join(fields)}"
                )
        records.append(Record(where, fields))
    if not records:
        raise UserError(f"{source}: there is no record in it; name another")
    return records


def as_text(value: Any, where: str, column: str) -> str:
    """A field that must be a text.

    Raises:
      UserError: it is none, or has half of a surrogate pair, as only JSON can.
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
        f"{source}: its kind is not known; its name must end in .csv, .tsv or .jsonl "
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
            f"{path}:{begin}: the record that begins here is not CSV ({error}): pair "
            'its quotes, and write a quote inside of a quoted field as ""'
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
            f"{where}: {len(row)} fields where the header names {len(header)}; write "
            "as many"
        )
    return dict(zip(header, row, strict=True))


def _read_json_lines(path: str) -> Numbered:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        fields = outside.parse(line, f"{path}:{number}")
        if not isinstance(fields, dict):
            raise UserError(f"{path}:{number}: no JSON object; write one a line")
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
    """A value of TFDS as JSON would hold it."""
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(None, item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
