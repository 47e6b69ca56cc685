"""Sentences in columns, one word per line, as the CoNLL shared tasks write them.

    -DOCSTART- -X- -X- O

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Tabs separate columns, or spaces in a file without tabs. An empty line ends a sentence.
A line that starts with -DOCSTART- starts a document.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.data.lines import read_lines
from bert_jax.errors import UserError

_DOCUMENT = "-DOCSTART-"
_BLANK = " \t"


class Sentence(NamedTuple):
    """Words and their tags; word i is on line `line` + i of its file."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None  # None: not known
    document: int = 0  # sentences of one document have the same number
    line: int = 0  # of the first word, from 1


class ColumnFile(NamedTuple):
    """A file's raw lines, and the sentences in them."""

    lines: tuple[str, ...]
    separator: str  # a tab or a space
    sentences: tuple[Sentence, ...]
    documents: dict[int, str]  # tags of the -DOCSTART- lines that have one, by line


def read_columns(
    path: str | Path, *, token_column: int, tag_column: int, labelled: bool
) -> ColumnFile:
    """Reads a file of columns.

    Args:
      token_column: from 0; negative ones count from the last column, which is -1.
      tag_column: likewise.
      labelled: tags are required. Otherwise a file without a tag column, or with
        words only, has no tags.

    Raises:
      UserError: a column is missing; a line has more or fewer columns than the others,
        or no word or tag; the file has no sentence; see also `read_lines`.
    """
    lines = tuple(line for _, line in read_lines(path))
    separator = "\t" if any("\t" in x for x in lines if x.strip(_BLANK)) else " "
    columns = _Columns(path, separator, token_column, tag_column, labelled)
    found: list[Sentence] = []
    documents: dict[int, str] = {}
    document = 0
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate((*lines, ""), 1):
        fields = _fields(line, separator)
        if fields and not fields[0].startswith(_DOCUMENT):
            word, tag = columns.pick(fields, number)
            words.append(word)
            tags.extend(tag)
            continue
        if words:
            known, first = tuple(tags) if tags else None, number - len(words)
            found.append(Sentence(tuple(words), known, document, first))
            words, tags = [], []
        if fields:
            document += 1
            if index := _index(tag_column, len(fields)):
                documents[number] = fields[index]
    if not found:
        raise UserError(f"{path}: has no sentence; write one word per line")
    return ColumnFile(lines, separator, tuple(found), documents)


class _Columns:
    """The columns of the word and the tag; the first line sets the column count."""

    def __init__(
        self, path: str | Path, separator: str, word: int, tag: int, labelled: bool
    ):
        self._path, self._separator, self._labelled = path, separator, labelled
        self._word, self._tag = word, tag
        self._width = self._first = 0

    def pick(self, fields: Sequence[str], number: int) -> tuple[str, list[str]]:
        """The word of line `number`, and its tag if there is one.

        Raises:
          UserError: see `read_columns`.
        """
        if not self._width:
            self._width, self._first = len(fields), number
        if len(fields) != self._width:
            there = f"but line {self._first} has {self._width}; fix the line"
            raise self._columns_error(number, len(fields), f", {there}")
        word, tag = _index(self._word, self._width), _index(self._tag, self._width)
        if word is None:
            missing = f"config.task.token_column={self._word} does not exist"
            raise self._columns_error(number, self._width, f"; {missing}")
        tag = None if tag == word else tag
        if self._labelled and tag is None:
            wrong = f"config.task.tag_column={self._tag} is not a column of tags"
            raise self._columns_error(number, self._width, f"; {wrong}")
        if not fields[word]:
            raise UserError(f"{self._path}:{number}: the word is empty; fix the line")
        if tag is None:
            return fields[word], []
        if not fields[tag].strip(" "):
            raise UserError(f"{self._path}:{number}: the tag is empty; fix the line")
        return fields[word], [fields[tag].strip(" ")]

    def _columns_error(self, number: int, width: int, text: str) -> UserError:
        columns = _columns(width, self._separator)
        return UserError(f"{self._path}:{number}: {columns}{text}")


def with_column(file: ColumnFile, tags: Sequence[Sequence[str]]) -> str:
    """Returns the file's text with `tags` appended as the last column.

    Empty lines and -DOCSTART- lines stay. A -DOCSTART- line repeats its own tag, since
    conlleval requires the same columns on every line.

    Args:
      tags: one for each word of each sentence.
    """
    added = dict(file.documents)
    for sentence, values in zip(file.sentences, tags, strict=True):
        for place, (_, value) in enumerate(zip(sentence.words, values, strict=True)):
            added[sentence.line + place] = value
    return "".join(
        f"{line.rstrip(' ')}{file.separator}{added[number]}\n"
        if number in added
        else f"{line.strip(_BLANK)}\n"
        for number, line in enumerate(file.lines, 1)
    )


def _fields(line: str, separator: str) -> list[str]:
    """Splits a line; empty where the line has only spaces and tabs."""
    if not line.strip(_BLANK):
        return []
    # Only at spaces: str.split also splits at characters that occur inside words.
    return line.split("\t") if separator == "\t" else re.split(" +", line.strip(" "))


def _index(column: int, width: int) -> int | None:
    index = column + width if column < 0 else column
    return index if 0 <= index < width else None


def _columns(count: int, separator: str) -> str:
    name = "tabs" if separator == "\t" else "spaces"
    return f"{count} column{'' if count == 1 else 's'} between {name}"
