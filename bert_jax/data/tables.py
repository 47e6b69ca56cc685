"""Reads records with named columns: CSV, TSV, JSON lines, parquet, data sets by name.

    NAME.csv      commas, fields quoted as in RFC 4180; they may contain line breaks
    NAME.tsv      tabs, no quoting: a quote is a normal character (as in GLUE)
    NAME.jsonl    one object per line
    NAME.parquet
    tfds:NAME:SPLIT
    hf:OWNER/NAME[:CONFIG]:SPLIT, on the Hugging Face Hub

CSV and TSV start with a header of column names, unless all columns that are asked for
are numbers: then there is no header, and the first column is "0". Several columns
without a name are "unnamed 2" and so on, by their places from 0. The first three may be
compressed: the endings of `lines.COMPRESSED` follow the name. Empty lines are skipped,
except in a TSV of one column, where they are empty texts.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.columns import ANY, Wanted, is_number
from bert_jax.data.lines import COMPRESSED, read_lines, uncompressed
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted


class Record(NamedTuple):
    """One record; its fields are strings in CSV and TSV, otherwise any JSON value."""

    where: str  # the file and the record's first line (TFDS: its number from 1)
    fields: dict[str, Any]


# Of columns, in the data sets that people have; as a record they would say nothing.
_USUAL_NAMES = {
    *("id", "idx", "index", "pairid", "guid", "text", "text_a", "text_b", "textb"),
    *("sentence", "sentence1", "sentence2", "question", "question1", "question2"),
    *("premise", "hypothesis", "context", "answer", "review", "comment", "tweet"),
    *("content", "document", "title", "body", "description", "label", "labels"),
    *("class", "category", "target", "gold_label", "sentiment", "polarity"),
    *("stars", "rating", "score"),
}


class NoColumn(UserError):
    """A table has no column of a name.

    Attributes:
      header: what was taken for the names of its columns; empty for numbered ones.
    """

    def __init__(self, message: str, header: Sequence[str]) -> None:
        super().__init__(message)
        self.header = header


def read_table(source: str, wanted: Wanted) -> list[Record]:
    """Reads all records of a file or of a data set's split, in order.

    Class labels of data sets become their names; -1, no label, becomes None.

    Args:
      source: a file, whose ending names its format, or a data set's split.

    Raises:
      UserError: a file cannot be read or has an unknown ending; a column is missing; a
        record has too few or too many fields, or unpaired quotes; there are no records;
        the columns are numbers, but the first line names its columns by them.
    """
    records = list(read_rows(source, wanted))
    if not records:
        raise UserError(f"{source}: has no records; name another source")
    return records


def read_rows(source: str, wanted: Wanted = ANY) -> Iterator[Record]:
    """Reads records one by one, as `read_table`; there may be none."""
    for number, fields in _numbered(source, wanted.numbers):
        where = f"{source}:{number}"
        for column in wanted.required:
            if column not in fields:
                is_table = uncompressed(source).endswith((".csv", ".tsv"))
                has_header = is_table and not wanted.numbers
                place = f"{source}:1" if has_header else where
                message = f"{place}: {_missing(column, fields, wanted)}"
                raise NoColumn(message, list(fields) if has_header else ())
        yield Record(where, fields)


def _missing(column: str, fields: dict[str, Any], wanted: Wanted) -> str:
    if wanted.numbers and "0" in fields:
        return f"no column {column}: there are {len(fields)}, numbered from 0"
    text = f"no column {column!r}; there are: {', '.join(fields)}"
    if any(map(is_number, wanted.required)):
        return f"{text} (a file without a header needs numbers for all columns)"
    return text


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


_UNNAMED = "unnamed "
Numbered = Iterator[tuple[int, dict[str, Any]]]


def _numbered(source: str, numbers: Sequence[str]) -> Numbered:
    if source.startswith("tfds:"):
        return _read_tfds(source)
    if source.startswith("hf:") or source.endswith(".parquet"):
        from bert_jax.data.sources import hub

        rows = hub.rows if source.endswith(".parquet") else hub.split_rows
        return enumerate(rows(source), 1)
    name = uncompressed(source)
    if name.endswith(".csv"):
        return _named(source, _csv_rows(source), numbers)
    if name.endswith(".tsv"):
        return _named(source, _tsv_rows(source), numbers)
    if name.endswith(".jsonl"):
        return _read_json_lines(source)
    raise UserError(
        f"{source}: unknown format; the name must end in .csv, .tsv or .jsonl "
        f"({', '.join(COMPRESSED)} may follow) or .parquet, or be tfds:NAME:SPLIT or "
        "hf:OWNER/NAME:SPLIT"
    )


def _named(
    path: str, rows: Iterable[tuple[int, list[str]]], numbers: Sequence[str]
) -> Numbered:
    """Names the fields of each row, by the header or (if `numbers`) by number."""
    names: list[str] = []
    first = "the header names"
    for number, row in rows:
        if not names and numbers:
            _check_no_header(f"{path}:{number}", row, numbers)
            names, first = [str(n) for n in range(len(row))], f"line {number} has"
        elif not names:
            names = _header(path, row)
            continue
        if len(row) != len(names):
            bare = sum(name.startswith(_UNNAMED) for name in names)
            raise UserError(
                f"{path}:{number}: has {len(row)} fields, but {first} {len(names)}"
                f"{f' ({bare} of them without a name)' * bool(bare)}; write as many"
            )
        yield number, dict(zip(names, row, strict=True))


def _csv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)  # 131,072 characters otherwise
    lines = (f"{line}\n" for _, line in read_lines(path))
    rows = csv.reader(lines, strict=True)
    begin = 1
    try:
        for row in rows:
            if row:
                yield begin, row
            begin = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{begin}: the record that starts here is not CSV ({error}): pair "
            'its quotes, and write a quote inside a quoted field as ""'
        ) from error


def _tsv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    width = 0
    for number, line in read_lines(path):
        row = line.split("\t")
        width = width or len(row)
        if line or width == 1:
            yield number, row


def _header(path: str, row: list[str]) -> list[str]:
    doubled = sorted({name for name in row if name and row.count(name) > 1})
    if doubled:
        raise UserError(
            f"{path}:1: the header has {doubled[0]!r} twice; rename one of the "
            "columns, or, if it is a record, name all columns by number from 0"
        )
    if row.count("") < 2:
        return row
    return [name or f"{_UNNAMED}{place}" for place, name in enumerate(row)]


def _check_no_header(where: str, row: list[str], numbers: Sequence[str]) -> None:
    """Raises UserError if the first line is a header: it has usual names alone, or
    names its columns by these numbers, as pandas writes columns without names; they may
    stand in another order. A record with a text is none, whatever its other fields."""
    by_number = set(numbers) <= set(row) and all(map(is_number, row))
    names = {field.strip().lower() for field in row} - {""}
    if by_number or (names and names <= _USUAL_NAMES):
        raise UserError(
            f"{where}: is it a header ({', '.join(row)})? Columns by number are for "
            "files without one: remove the line, or train with the columns' names"
        )


def _read_json_lines(path: str) -> Numbered:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        fields = untrusted.parse(line, f"{path}:{number}")
        if not isinstance(fields, dict):
            raise UserError(f"{path}:{number}: not a JSON object; write one per line")
        yield number, fields


def _read_tfds(source: str) -> Numbered:
    _, name, split = [*source.split(":", 2), ""][:3]
    if not name or not split:
        raise UserError(
            f"{source}: write tfds:NAME:SPLIT, such as tfds:imdb_reviews:train"
        )
    from bert_jax.data.sources import tfds as tfds_source

    builder = tfds_source.prepared(name)
    features = builder.info.features
    for number, example in enumerate(tfds_source.examples(name, builder, split), 1):
        try:
            row = {k: _plain(features[k], value) for k, value in example.items()}
        except UnicodeDecodeError as error:
            raise UserError(f"{source}: record {number} is not UTF-8") from error
        yield number, row


def _plain(feature: Any, value: Any) -> Any:
    """Converts a TFDS value to a JSON value."""
    import tensorflow_datasets as tfds

    each = getattr(feature, "feature", None)  # of a sequence
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(each, item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(None, item) for name, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value
