"""Tables with named columns: CSV, TSV, JSON lines, parquet, data sets by name.

    NAME.csv      fields quoted as in RFC 4180, which may contain line breaks. Separated
                  by commas, or if the header has none, by semicolons, tabs or |
    NAME.tsv      tabs, no quoting: a quote is a normal character (as in GLUE)
    NAME.jsonl    one object per line
    NAME.parquet
    tfds:NAME:SPLIT
    hf:OWNER/NAME[:CONFIG]:SPLIT, on the Hugging Face Hub

Every task reads its labeled data here. `ColumnSpec.format` (csv, tsv, jsonl) overrides
a file's ending. CSV and TSV start with a header of column names, unless all columns
that are wanted are numbers: then there is no header, and the first column is "0". The
first three may be compressed: the endings of `lines.COMPRESSED` follow the name. Empty
lines are skipped, except in a TSV of one column, where they are empty texts. A first
line `sep=;` of a CSV, as Excel has it, names the separator.
"""

import csv
import datetime
import decimal
import itertools
import json
import logging
import math
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.lines import COMPRESSED, read_lines, uncompressed_name
from bert_jax.data.sources import hub, tfds
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted

log = logging.getLogger(__name__)

_ADAPTERS: dict[str, Any] = {"tfds": tfds, "hf": hub}
BY_NAME = ("tfds:", "hf:")  # prefixes of data sets that are not files
# A name may have a colon (tfds:mnist:3.0.1), and a split too (train[:10%]).
_SPLIT = re.compile(r"(tfds|hf):(.+):((?:[^:\[\]]|\[[^\]]*\])+)")
_QUOTES = "; are fields quoted as in CSV? Name the format: --config.task.format=csv"
_SEPARATED = "; are they separated by commas (.csv) or tabs (.tsv)?"
_QUOTED_TAB = re.compile(r'(^|\t)"[^"]*\t[^"]*"(\t|$)')  # in a line of TSV
_EXCEL = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # the first line, perhaps
# Words of which the names of columns consist.
_HEADER_WORD = re.compile(
    "abstract|answer|author|body|categor(y|ies)|class(es)?|column|comments?|content|"
    "context|date|description|document|emotion|entailment|genre|gold|guid|headline|"
    "hypothesis|id|idx|index|intent|key|labels?|lang|language|message|name|number|pair|"
    "passage|polarity|post|premise|query|question|ratings?|reviews?|scores?|sentences?|"
    "sentiment|similarity|source|split|stars?|subject|summary|tags?|target|texts?|time|"
    "title|topic|tweets?|type|uid|url|user|value|year"
)
_AS_TEXT = (datetime.date, datetime.time, datetime.timedelta, uuid.UUID)

Row = dict[str, Any]


class ColumnSpec(NamedTuple):
    """Columns by name, or all by number in files without a header.

    Attributes:
      required: Columns that a file must have.
      optional: Columns that are read where a file has them.
      format: csv, tsv or jsonl. Empty means by the file's ending.
      incomplete: Whether lines of TSV may have too few fields, and are then left out.
      alone: Whether nothing but the required columns is used.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    format: str = ""
    incomplete: bool = False
    alone: bool = False

    @property
    def numbers(self) -> tuple[str, ...]:
        """All columns if each is a number, else none."""
        every = (*self.required, *self.optional)
        return every if all(map(str.isdecimal, every)) else ()


ANY = ColumnSpec()  # whatever columns the header names


class Record(NamedTuple):
    """A row. Its fields are strings in CSV and TSV, otherwise any JSON value."""

    where: str  # file and the row's first line (in a data set: its number from 1)
    fields: Row  # values by column


def read_table(source: str, wanted: ColumnSpec) -> list[Record]:
    """Reads all rows of a file or of a data set's split, in order.

    Class labels of data sets become their names. -1, no label, becomes None.

    Args:
      source: A file, whose ending names its format, or a data set's split.

    Raises:
      UserError: A file cannot be read or has an unknown ending, a column is missing, a
        row has too few or too many fields or unpaired quotes, or there are no rows.
    """
    records = list(read_rows(source, wanted))
    if not records:
        raise UserError(f"{source}: has no records; name another source")
    return records


def read_rows(source: str, wanted: ColumnSpec = ANY) -> Iterator[Record]:
    """Reads rows one by one, as `read_table`, perhaps none."""
    if source.startswith(BY_NAME):
        form = source.partition(":")[0]
    else:
        ending = uncompressed_name(source).rpartition(".")[2]
        form = ending if ending == "parquet" else wanted.format or ending
    columns = wanted.required if wanted.alone else ()
    records: Iterator[Record]
    match form:
        case "tfds" | "hf":
            adapter, name, split = _split_of(source)
            records = _number_rows(source, adapter.split_rows(name, split, columns))
        case "parquet":
            records = _number_rows(source, hub.parquet_rows(source, columns))
        case "csv":
            records = _name_fields(source, _csv_rows(source, wanted), wanted)
        case "tsv":
            records = _name_fields(source, _tsv_rows(source), wanted)
        case "jsonl":
            records = json_rows(source, read_lines(source))
        case _:
            raise UserError(
                f"{source}: unknown format; the name must end in .csv, .tsv or .jsonl "
                f"({', '.join(COMPRESSED)} may follow) or .parquet, or be "
                "tfds:NAME:SPLIT or hf:OWNER/NAME:SPLIT; where the task has it, "
                "--config.task.format=csv, tsv or jsonl names the format"
            )
    has_header = form in ("csv", "tsv") and not wanted.numbers
    for record in records:
        for column in wanted.required:
            if column not in record.fields:
                where = f"{source}:1" if has_header else record.where
                there = ", ".join(record.fields)
                hint = "" if len(record.fields) > 1 else _SEPARATED
                raise UserError(
                    f"{where}: no column {column!r}; there are: {there}{hint}"
                )
        yield record


def has_split(source: str) -> bool:
    """Returns whether there is such a split of a data set by name."""
    adapter, name, split = _split_of(source)
    return bool(adapter.has_split(name, split))


def _split_of(source: str) -> tuple[Any, str, str]:
    """Returns the adapter, the name and the split of a data set by name."""
    match = _SPLIT.fullmatch(source)
    if match is None:
        raise UserError(
            f"{source}: write tfds:NAME:SPLIT, hf:OWNER/NAME:SPLIT or "
            "hf:OWNER/NAME:CONFIG:SPLIT, such as hf:stanfordnlp/imdb:train"
        )
    return _ADAPTERS[match[1]], match[2], match[3]


def require_string(value: Any, where: str, column: str) -> str:
    """Returns a field that must be text.

    Raises:
      UserError: It is not a string.
    """
    if not isinstance(value, str):
        raise UserError(f"{where}: {column!r} is {value!r:.60}; it must be a string")
    return value


def _number_rows(source: str, rows: Iterable[Row]) -> Iterator[Record]:
    return (Record(f"{source}:{n}", row) for n, row in enumerate(rows, 1))


def _name_fields(
    path: str, rows: Iterable[tuple[int, list[str]]], wanted: ColumnSpec
) -> Iterator[Record]:
    """Names the fields of each row, by the header or by number."""
    names: list[str] = []
    first = "the header names"
    for number, row in rows:
        if not names and wanted.numbers:
            names, first = [str(n) for n in range(len(row))], f"line {number} has"
            _refuse_header(f"{path}:{number}", row, wanted.numbers)
        elif not names:
            names = row
            named = [name for name in names if name]
            if len({*named}) < len(named):
                raise UserError(f"{path}:{number}: the header has a name twice: {row}")
            continue
        if len(row) < len(names) and wanted.incomplete:
            continue
        if len(row) != len(names):
            hint = _QUOTES if any(field.startswith('"') for field in row) else ""
            raise UserError(
                f"{path}:{number}: has {len(row)} fields, but {first} {len(names)}; "
                f"write as many{hint}"
            )
        yield Record(f"{path}:{number}", dict(zip(names, row, strict=True)))


def _refuse_header(where: str, row: list[str], numbers: Iterable[str]) -> None:
    """Raises UserError if a row of a table without a header has only common names of
    columns, in the columns that are read or, if that is one, in all."""
    read = [row[int(number)] for number in numbers if int(number) < len(row)]
    named = [field for field in (read if len(read) > 1 else row) if field]
    words = [re.findall("[a-z]{2,}", field.lower()) for field in named]
    if words and all(name and all(map(_HEADER_WORD.fullmatch, name)) for name in words):
        raise UserError(
            f"{where}: {', '.join(row)} is a header, and the columns are numbers; name "
            f"them, such as --config.task.text={read[0]}, or remove the line"
        )


def _csv_rows(path: str, wanted: ColumnSpec) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)  # 131,072 characters otherwise
    lines = (f"{line}\n" for _, line in read_lines(path))
    first, skipped = next(lines), 0
    named = _EXCEL.fullmatch(first.rstrip("\n"))
    if named:
        first, skipped = next(lines, ""), 1
    # Without a header the first line has a text, in which these are punctuation.
    separators = ",\t" if wanted.format else ","
    separators = separators if wanted.numbers else ",;\t|"
    unquoted = re.sub('"[^"]*"', "", first)
    separator = named[1] if named else max(separators, key=unquoted.count)
    rows = csv.reader(itertools.chain([first], lines), strict=True, delimiter=separator)
    begin = 1 + skipped
    try:
        for row in rows:
            if row:
                yield begin, row
            begin = rows.line_num + 1 + skipped
    except csv.Error as error:
        raise UserError(
            f"{path}:{begin}: the record that starts here is not CSV ({error}): pair "
            'its quotes, and write a quote inside a quoted field as ""'
        ) from error


def _tsv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields line numbers and fields, in no line more fields than in the first."""
    width = 0
    has_more = False
    for number, line in read_lines(path):
        row = line.split("\t")
        width = width or len(row)
        if len(row) > width > 1 and not _QUOTED_TAB.search(line):
            if not has_more:
                log.warning(
                    "warning: %s:%d: has %d fields; only the first %d are read, here "
                    "and in later lines",
                    *(path, number, len(row), width),
                )
            has_more, row = True, row[:width]
        if line or width == 1:
            yield number, row


def json_rows(
    name: str, lines: Iterable[tuple[int, str]], *, finite: bool = False
) -> Iterator[Record]:
    """Reads JSON lines, by number.

    Args:
      name: Name of the file, for errors.
      finite: Whether NaN and infinity are errors, which Python writes and JSON lacks.
    """
    for number, line in lines:
        if line.strip():
            where = f"{name}:{number}"
            fields = untrusted.parse_json(line, where, finite=finite)
            if not isinstance(fields, dict):
                raise UserError(f"{where}: not a JSON object; write one per line")
            yield Record(where, fields)


def python_rows(given: Any) -> list[Row]:
    """Returns the rows of a data frame (pandas, polars), a table of Arrow, or a list of
    dicts and texts (which are a row's `text`), with the values of `plain_value`.

    Raises:
      TypeError: It is a single row, or a row is of another type.
      ValueError: A value is no text. Names the row and the field.
    """
    if isinstance(given, str | bytes | Mapping | Set):
        raise TypeError(f"a list of rows is required, not one {type(given).__name__}")
    names = list(
        map(str, getattr(given, "column_names", getattr(given, "columns", ())))
    )
    if len({*names}) < len(names):
        raise ValueError(f"the columns {', '.join(names):.200}: a name is there twice")
    if hasattr(given, "to_pylist"):  # Arrow
        given = given.to_pylist()
    elif hasattr(given, "to_dicts"):  # polars
        given = given.to_dicts()
    elif hasattr(given, "columns"):  # pandas
        given = given.to_dict("records")
    rows = []
    for number, item in enumerate(given):
        row = item if isinstance(item, Mapping) else {"text": item}
        rows.append(
            {str(x): plain_value(y, f"row {number}: {x!r}") for x, y in row.items()}
        )
        if row is not item and not isinstance(rows[-1]["text"], str):
            raise TypeError(f"row {number}: {item!r:.60} is neither a dict nor a text")
    return rows


def plain_value(value: Any, where: str) -> Any:
    """Returns a value of Python as JSON has it, or unchanged if JSON lacks it.

    What is missing (NaN, NaT, NA) is None. Arrays, tuples and sets are lists. Bytes are
    UTF-8. Dates are texts, and decimal numbers are numbers.

    Args:
      where: The row and the field, for errors.

    Raises:
      ValueError: A text has half of a surrogate pair, or bytes are not UTF-8.
    """
    if isinstance(value, str | bytes | bytearray):
        try:
            text = str(value) if isinstance(value, str) else value.decode()
            text.encode()
        except (UnicodeEncodeError, UnicodeDecodeError) as error:
            what = f"is not Unicode ({error.reason}); correct it"
            raise ValueError(f"{where} {what}") from error
        return text
    if value is None or isinstance(value, bool | int):
        return value
    if type(value).__name__ in ("NaTType", "NAType"):  # of pandas
        return None
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else str(value)
    if isinstance(value, decimal.Decimal):
        number = float(value)
        value = int(value) if number.is_integer() else number
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {str(name): plain_value(x, where) for name, x in value.items()}
    if isinstance(value, list | tuple | Set):
        items = [plain_value(item, where) for item in value]
        return sorted(items, key=str) if isinstance(value, Set) else items
    if hasattr(value, "as_py"):  # of Arrow
        return plain_value(value.as_py(), where)
    if hasattr(value, "tolist"):  # of NumPy, pandas, torch
        listed = value.tolist()
        return value if type(listed) is type(value) else plain_value(listed, where)
    return str(value) if isinstance(value, _AS_TEXT) else value


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yields rows of `python_rows` as JSON lines.

    Raises:
      TypeError: JSON lacks a value. Names the row and the field.
    """
    for number, row in enumerate(rows):
        try:
            yield json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        except (TypeError, ValueError):
            for name, value in row.items():
                try:
                    json.dumps(value, allow_nan=False)
                except (TypeError, ValueError) as error:
                    raise TypeError(
                        f"row {number}: {name!r} is {value!r:.60}, which JSON lacks; "
                        "make it a text or a number, or leave the field out"
                    ) from error
            raise
