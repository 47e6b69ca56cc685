"""Rows of `predict` and `extract` in files that are not JSON lines, by their names.

in:   .csv, .tsv, .parquet, hf:, tfds: (data/tables.py); .txt: each line is a `text`;
      compressed ones, .jsonl too
out:  .csv and .tsv
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.data.lines import read_lines, uncompressed
from bert_jax.data.tables import ANY, BY_NAME, Wanted
from bert_jax.errors import UserError

Row = dict[str, Any]
_LABELS = ("label", "labels", "score", "tags", "answer")  # of answers


def reader(source: str, wanted: Wanted = ANY) -> Iterator[tuple[str, str]] | None:
    """The rows of a table or of lines of text, as places and JSON; None: another file.

    Args:
      wanted: the columns of a table; by number: it has no header. Its format does not
        hold for .jsonl and .parquet.

    Raises (when read):
      UserError: see `data.tables.read_table`.
    """
    name = uncompressed(source)
    ending = name.rpartition(".")[2]
    decisive = ["jsonl", "parquet", *([] if wanted.overrides else ["csv", "tsv"])]
    form = ending if ending in decisive else wanted.format or ending
    if form in ("csv", "tsv", "parquet") or source.startswith(BY_NAME):
        from bert_jax.data.tables import read_rows  # JSON lines do without

        return (
            (where, json.dumps(fields, default=str))
            for where, fields in read_rows(source, wanted._replace(format=form))
        )
    is_text = form == "txt"
    if not is_text and (name == source or form != "jsonl"):
        return None
    return (
        (f"{source}:{number}", json.dumps({"text": line}) if is_text else line)
        for number, line in read_lines(source)
        if line.strip()
    )


def writer(
    target: str, file: Any, columns: list[str] | None = None
) -> Callable[[Row], None]:
    """What writes a row to an open file: JSON, or a table with the first row's columns.

    In a table the fields of an object have a column each, NAME.FIELD, lists are JSON,
    and nothing is an empty field. In TSV a tab or line break in a field is a space.

    Args:
      columns: Names of the columns of a table that is written already, or an empty
        list, which gets them.

    Raises (when it writes):
      UserError: a row has other columns than the first.

    Raises:
      UserError: the name's ending is of a format that is only read.
    """
    if uncompressed(target) != target or target.endswith(".parquet"):
        raise UserError(
            f"--output={target}: only .jsonl, .csv and .tsv are written, not compressed"
        )
    if not target.endswith((".csv", ".tsv")):
        return lambda row: file.write(json.dumps(row, ensure_ascii=False) + "\n")

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
        flat = _flat(row)
        if not columns:
            columns.extend(flat)
            put(columns)
        if flat.keys() != set(columns):
            other = sorted(flat.keys() ^ set(columns))[0]
            raise UserError(
                f"--output={target}: not all rows have {other!r}, so they make no "
                "table; write .jsonl"
            )
        put([flat[name] for name in columns])

    return write


def answered(row: Row, answer: Row) -> dict[str, Any]:
    """Returns the row and its answer. A label of the row stays as `gold`; another field
    that the answer has too, also as NAME.FIELD of a table, as `input_NAME`."""
    objects = {name: x for name, x in answer.items() if isinstance(x, dict)}
    taken = {
        *answer,
        *(f"{name}.{field}" for name in objects for field in objects[name]),
    }
    kept: Row = {}
    for name, value in row.items():
        if name in taken:
            is_gold = name in _LABELS and "gold" not in {*row, *kept, *taken}
            name = "gold" if is_gold else f"input_{name}"
            while name in row or name in kept:
                name = f"input_{name}"
        kept[name] = value
    return kept | answer


def rounded(value: Any) -> Any:
    """An answer with numbers of six digits: a float32 has not many more."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return value


def _flat(row: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{field}": _cell(x) for field, x in value.items()}
        else:
            flat[name] = _cell(value)
    return flat


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
