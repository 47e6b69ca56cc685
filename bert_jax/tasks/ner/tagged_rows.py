"""Rows of words and their tags, as lines of columns.

    {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}

Tags may be numbers, of `config.task.labels` or, in a data set, of its own names.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.data import tables
from bert_jax.data.columns import BY_NAME, Wanted
from bert_jax.data.lines import read_lines, uncompressed
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted

TAGS = ("ner_tags", "ner", "tags")  # a row's column of tags, the first that is there

_HINT = (
    "; name the tags of the numbers from 0, in order: "
    "--config.task.labels=\"('O', 'B-PER', ...)\""
)


def has_rows(path: str) -> bool:
    """Whether a file or data set has rows, and not lines of columns.

    Raises:
      UserError: see `read_lines`.
    """
    if path.startswith(BY_NAME) or path.endswith(".parquet"):
        return True
    if uncompressed(path).endswith((".jsonl", ".json")):
        return True
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    return first.lstrip().startswith('{"')


def lines(path: str, labels: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """The number of each line's row, from 1; and the lines: a word, a tab and its tag.

    Args:
      labels: the names of tags that are numbers.

    Raises:
      UserError: a row is not as it should be; see also `tables.read_rows`.
    """
    every: list[tuple[int, str]] = []
    have_tags: set[bool] = set()
    for number, where, row in _rows(path):
        found = list(_lines(where, row, labels))
        have_tags |= {"\t" in line for line in found[:-1]}
        if len(have_tags) > 1:
            raise UserError(
                f"{where}: only some rows have tags ({', '.join(TAGS)}); give all of "
                "them tags, or none in a test file"
            )
        every += [(number, line) for line in found]
    return [number for number, _ in every], tuple(line for _, line in every)


def _rows(path: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each row's number from 1, place for errors, and fields."""
    if path.startswith(BY_NAME) or path.endswith(".parquet"):
        records = tables.read_rows(path, Wanted(("tokens",)))
        for number, (where, fields) in enumerate(records, 1):
            yield number, where, fields
        return
    for number, row in _json_rows(path):
        where = f"{path}:{number}"
        if not isinstance(row, dict) or "tokens" not in row:
            raise UserError(
                f"{where}: not a row of words; write one object per line, such as "
                '{"tokens": ["EU"], "ner_tags": ["B-ORG"]}'
            )
        yield number, where, row


def _json_rows(path: str) -> Iterator[tuple[int, Any]]:
    """An object per line, or a list of them."""
    filled = [(number, line) for number, line in read_lines(path) if line.strip()]
    if filled and filled[0][1].lstrip().startswith("["):
        yield from enumerate(untrusted.parse("\n".join(x for _, x in filled), path), 1)
        return
    for number, line in filled:
        yield number, untrusted.parse(line, f"{path}:{number}")


def _lines(where: str, row: dict[str, Any], labels: Sequence[str]) -> Iterator[str]:
    """A row's lines, and an empty one."""
    words = row["tokens"]
    tags = next((row[name] for name in TAGS if name in row), None)
    if not isinstance(words, list) or not isinstance(tags, list | None):
        raise UserError(f"{where}: the words and the tags must be lists")
    if tags is not None and len(tags) != len(words):
        raise UserError(f"{where}: {len(words)} words, but {len(tags)} tags")
    for index, word in enumerate(words):
        cells = [word] if tags is None else [word, _named(tags[index], labels)]
        if not all(isinstance(cell, str) and cell.strip() for cell in cells):
            hint = _HINT if isinstance(cells[-1], int) else ""
            raise UserError(f"{where}: word {index} is {cells!r:.60}, not text{hint}")
        yield "\t".join(" ".join(cell.split()) for cell in cells)
    yield ""


def _named(tag: Any, labels: Sequence[str]) -> Any:
    """The name of a tag that is a number; other tags as they are."""
    if isinstance(tag, int) and not isinstance(tag, bool) and 0 <= tag < len(labels):
        return labels[tag]
    return tag
