"""Sentences in columns, a word a line, as the CoNLL shared tasks write them.

    -DOCSTART- -X- -X- O

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Columns stand between tabs (where the file has any) or between spaces, an empty line
ends a sentence, and a line that begins with -DOCSTART- begins a document.
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
    """Words and their tags; a word of a file stands in line `line` + its index."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None  # None: not known
    document: int = 0  # sentences of one document have the same number
    line: int = 0  # of the first word, from 1


class ColumnFile(NamedTuple):
    """A file's lines as they stand there, and the sentences in them."""

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
      labelled: there must be tags. Otherwise a file that has no such column, or only
        that of the words, is one without tags.

    Raises:
      UserError: no such column; a line with more or fewer columns than the others, or
        without a word or tag; no sentence; what `read_lines` raises.
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
        raise UserError(f"{path}: no sentence in it: a word a line is required")
    return ColumnFile(lines, separator, tuple(found), documents)


class _Columns:
    """Where in a line its word and its tag stand; the first line says how many columns
    each has."""

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
        where = f"{self._path}:{number}"
        there = f"{where}: {_columns(len(fields), self._separator)}"
        if len(fields) != self._width:
            raise UserError(
                f"{there}, where line {self._first} has {self._width}; mend the line"
            )
        word, tag = _index(self._word, self._width), _index(self._tag, self._width)
        if word is None:
            raise UserError(
                f"{there}; there is no config.task.token_column={self._word}"
            )
        tag = None if tag == word else tag
        if self._labelled and tag is None:
            raise UserError(
                f"{there}; config.task.tag_column={self._tag} is no column with tags"
            )
        if not fields[word]:
            raise UserError(f"{where}: the word is empty; mend the line")
        if tag is None:
            return fields[word], []
        if not fields[tag].strip(" "):
            raise UserError(f"{where}: the tag is empty; mend the line")
        return fields[word], [fields[tag].strip(" ")]


def with_column(file: ColumnFile, tags: Sequence[Sequence[str]]) -> str:
    """The file's text with one more column, the last.

    Empty lines and -DOCSTART- lines stay. The latter repeat the tag that they have, as
    conlleval wants the same columns everywhere.

    Args:
      tags: of each word of each sentence.
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
    """None of them where there is nothing but spaces and tabs."""
    if not line.strip(_BLANK):
        return []
    # Only at spaces: str.split knows more characters, which stand inside of words.
    return line.split("\t") if separator == "\t" else re.split(" +", line.strip(" "))


def _index(column: int, width: int) -> int | None:
    index = column + width if column < 0 else column
    return index if 0 <= index < width else None


def _columns(count: int, separator: str) -> str:
    name = "tabs" if separator == "\t" else "spaces"
    return f"{count} column{'' if count == 1 else 's'} between {name}"
