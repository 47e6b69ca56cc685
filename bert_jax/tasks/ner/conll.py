"""Sentences in columns, one word per line, as the CoNLL shared tasks write them.

    -DOCSTART- -X- -X- O

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Tabs separate columns where most lines have them, otherwise spaces and tabs. An empty
line ends a sentence.
A line that starts with -DOCSTART- starts a document. Before a sentence's first word
there may be comments, as in CoNLL-U and some IOB2 files. A word may still be `#`:

    # newdoc id = weblog-1
    # text = I don't know.
    1	I	I	PRON	...
    2-3	don't	_	_	...
    2	do	do	AUX	...

`# newdoc` starts a document. Where the first column numbers the words, as here, lines
of several words (2-3) and of words that are not in the text (8.1) are skipped. Tags may
be in MISC (misc.py). A file of JSON has a sentence in a row (tagged_rows.py).
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.data.lines import read_lines, uncompressed
from bert_jax.errors import UserError
from bert_jax.tasks.ner import misc, tagged_rows

_DOCUMENT = "-DOCSTART-"
_BLANK = " \t"
_NAMED = re.compile(r"# *[\w.:-]+ *= ")  # a comment such as `# sent_id = 7`
_NEW_DOCUMENT = re.compile(r"# *newdoc\b|###MEDLINE:")  # the latter in JNLPBA's files
_FIRST = re.compile(r"1|1-\d+|0\.1")  # where the first column numbers the words
_WORDLESS = re.compile(r"\d+-\d+|\d+\.\d+")  # such a number's line has no word


class Sentence(NamedTuple):
    """Words and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None  # None: not known
    document: int = 0  # sentences of one document have the same number
    line: int = 0  # of the first word, from 1
    gaps: tuple[int, ...] = ()  # later lines of the sentence that have no word
    row: int = 0  # of a data set or a file of JSON, from 1; 0: of a file of columns

    @property
    def lines(self) -> tuple[int, ...]:
        """The line of each word."""
        there = (n for n in itertools.count(self.line) if n not in self.gaps)
        return tuple(itertools.islice(there, len(self.words)))

    @property
    def places(self) -> tuple[int, ...]:
        """The line or row of each word, for errors."""
        return (self.row,) * len(self.words) if self.row else self.lines


class ColumnFile(NamedTuple):
    """A file's raw lines, and the sentences in them."""

    lines: tuple[str, ...]
    separator: str  # a tab; or a space, for spaces and tabs
    sentences: tuple[Sentence, ...]
    documents: dict[int, str]  # tags of the -DOCSTART- lines that have one, by line
    width: int  # columns
    skipped: frozenset[int] = frozenset()  # comments and other lines without a word
    tags_last: bool = True  # the last column has the tags


def read_columns(
    path: str | Path,
    *,
    token_column: int,
    tag_column: int,
    labelled: bool,
    tagged_width: int = 0,
    labels: Sequence[str] = (),
) -> ColumnFile:
    """Reads a file of columns, or rows of words and tags: JSON, parquet, or a data set
    by name (hf:eriktks/conll2003:train, tfds:conll2003:train).

    Args:
      token_column: from 0; negative ones count from the last column, which is -1. Not
        for rows.
      tag_column: likewise.
      labelled: tags are required. Otherwise a file without a tag column, or with
        words only, has no tags.
      tagged_width: columns of the files that have tags; one with fewer lacks what a
        negative `tag_column` names there.
      labels: the names of tags that are numbers, in rows.

    Raises:
      UserError: a column is missing; a line has more or fewer columns than the others,
        or no word or tag; the file has no sentence; see also `read_lines`.
    """
    rows: list[int] = []
    if tagged_rows.has_rows(str(path)):
        rows, lines = tagged_rows.lines(str(path), labels)
        token_column, tag_column = 0, -1
    else:
        lines = tuple(line for _, line in read_lines(path))
    form = _Form.of(lines, token_column)
    if rows:  # a word may have spaces, also behind a #
        form = form._replace(separator="\t", has_comments=False)
    if form.words_first and uncompressed(str(path)).endswith(".conllu"):
        raise UserError(
            f"{path}: in CoNLL-U the words are column 1: set config.task.token_column=1"
            ", and for parts of speech config.task.tag_column=3 (UPOS) or 4 (XPOS)"
        )
    columns = _Columns(
        *(path, form.separator, token_column, tag_column, labelled, tagged_width),
        form.misc_name(lines, tag_column),
    )
    file = _gather(lines, form, columns)
    if not file.sentences:
        raise UserError(f"{path}: has no sentence; write one word per line")
    numbered = (s._replace(row=rows[s.line - 1]) for s in file.sentences)
    return file._replace(sentences=tuple(numbered)) if rows else file


def _gather(lines: tuple[str, ...], form: "_Form", columns: "_Columns") -> ColumnFile:
    sentences: list[Sentence] = []
    documents: dict[int, str] = {}
    skipped: set[int] = set()
    document = 0
    words: dict[int, str] = {}  # by line
    tags: list[str] = []
    for number, line in enumerate((*lines, ""), 1):
        fields = split_line(line, form.separator)
        if not words and form.is_comment(line, fields):
            skipped.add(number)
            document += bool(_NEW_DOCUMENT.match(line))
            continue
        if fields and not fields[0].startswith(_DOCUMENT):
            if form.is_wordless(fields):
                skipped.add(number)
                continue
            words[number], tag = columns.pick(fields, number)
            tags.extend(tag)
            continue
        if words:
            sentences.append(_sentence(words, tags, document))
            words, tags = {}, []
        if fields:
            document += 1
            if index := column_index(columns.tag, len(fields)):
                documents[number] = fields[index]
    return ColumnFile(
        *(lines, form.separator, tuple(sentences), documents, columns.width),
        frozenset(skipped),
        columns.tags_last,
    )


def _sentence(words: dict[int, str], tags: list[str], document: int) -> Sentence:
    """A sentence of the words by their lines, in order."""
    first, *_, last = (*words, max(words))
    gaps = tuple(n for n in range(first, last) if n not in words)
    known = tuple(tags) if tags else None
    return Sentence(tuple(words.values()), known, document, first, gaps)


class _Form(NamedTuple):
    """What tells comments and lines without a word from the others."""

    separator: str
    width: int  # columns
    words_first: bool  # the first column has the words
    numbered: bool  # it numbers them
    has_comments: bool = True

    @classmethod
    def of(cls, lines: Sequence[str], token_column: int) -> "_Form":
        filled = [line for line in lines if line.strip(_BLANK)]
        # Without what may be a comment, unless there is nothing else.
        sure = [line for line in filled if not line.startswith("#")] or filled
        with_tab = sum("\t" in line for line in sure)
        separator = "\t" if 2 * with_tab >= len(sure) > 0 else " "
        words = (x for x in sure if not x.startswith(_DOCUMENT))
        first = split_line(next(words, ""), separator)
        words_first = column_index(token_column, len(first)) == 0
        numbered = not words_first and bool(first and _FIRST.fullmatch(first[0]))
        return cls(separator, len(first), words_first, numbered)

    def misc_name(self, lines: Iterable[str], tag_column: int) -> str | None:
        """As `misc.tags_name`; empty if the column of tags is another one."""
        index = column_index(tag_column, self.width)
        if self.numbered and index == misc.COLUMN == self.width - 1:
            return misc.tags_name(split_line(line, self.separator) for line in lines)
        return ""

    def is_comment(self, line: str, fields: Sequence[str]) -> bool:
        """Whether it is a comment, if it stands before a sentence's first word."""
        if not self.has_comments or not line.startswith("#"):
            return False
        whole = len(fields) == self.width
        if line.startswith("# "):
            return (
                not whole
                or "\t" in f"{self.separator}{line}"
                or bool(_NAMED.match(line))
            )
        return not whole and (line.startswith("##") or not self.words_first)

    def is_wordless(self, fields: Sequence[str]) -> bool:
        """Whether it stands for several words, or for one that is not in the text."""
        return self.numbered and bool(_WORDLESS.fullmatch(fields[0]))


class _Columns:
    """The columns of the word and the tag; the first line sets the column count."""

    def __init__(
        self,
        path: str | Path,
        separator: str,
        word: int,
        tag: int,
        labelled: bool,
        tagged_width: int,
        misc_name: str | None,
    ):
        self._path, self._separator, self._labelled = path, separator, labelled
        self._word, self.tag, self._tagged_width = word, tag, tagged_width
        self.width = self._first = 0
        self._misc_name = misc_name  # of the tags in MISC

    @property
    def tags_last(self) -> bool:
        """Whether the last column has the tags, as conlleval requires."""
        return (
            not self._misc_name and column_index(self.tag, self.width) == self.width - 1
        )

    def pick(self, fields: Sequence[str], number: int) -> tuple[str, list[str]]:
        """The word of line `number`, and its tag if there is one.

        Raises:
          UserError: see `read_columns`.
        """
        if not self.width:
            self.width, self._first = len(fields), number
        if len(fields) != self.width:
            there = f"but line {self._first} has {self.width}; fix the line"
            raise self._columns_error(number, len(fields), f", {there}")
        word = column_index(self._word, self.width)
        if word is None:
            missing = f"config.task.token_column={self._word} does not exist"
            raise self._columns_error(number, self.width, f"; {missing}")
        tag = column_index(self.tag, max(self.width, self._tagged_width))
        is_bare = self._misc_name is None and not self._labelled
        if tag is not None and (tag == word or tag >= self.width or is_bare):
            tag = None
        if self._labelled and tag is None:
            wrong = f"config.task.tag_column={self.tag} is not a column of tags"
            raise self._columns_error(number, self.width, f"; {wrong}")
        if not fields[word]:
            raise UserError(f"{self._path}:{number}: the word is empty; fix the line")
        if tag is None:
            return fields[word], []
        if self._misc_name:
            return fields[word], [misc.values(fields).get(self._misc_name, "O")]
        if not fields[tag].strip(" "):
            raise UserError(f"{self._path}:{number}: the tag is empty; fix the line")
        return fields[word], [fields[tag].strip(" ")]

    def _columns_error(self, number: int, width: int, text: str) -> UserError:
        columns = _columns(width, self._separator)
        return UserError(f"{self._path}:{number}: {columns}{text}")


def with_column(file: ColumnFile, tags: Sequence[Sequence[str]]) -> str:
    """Returns the file's text with `tags` appended as the last column.

    conlleval compares the last two columns, so where the file's own tags are not in its
    last column they are repeated before. Empty lines and -DOCSTART- lines stay. A
    -DOCSTART- line repeats its own tag, since conlleval requires the same columns on
    every line; for it comments and lines without a word are left out.

    Args:
      tags: one for each word of each sentence.
    """
    added = {number: (tag, tag) for number, tag in file.documents.items()}
    for sentence, values in zip(file.sentences, tags, strict=True):
        given = sentence.tags or ("",) * len(values)
        added |= zip(sentence.lines, zip(given, values, strict=True), strict=True)
    text = ""
    for number, line in enumerate(file.lines, 1):
        if number in added:
            own, tag = added[number]
            columns = [tag] if file.tags_last or not own else [own, tag]
            # In a file of spaces, a tab between columns would be part of a word.
            line = line.rstrip(" ").replace("\t", file.separator)
            text += file.separator.join([line, *columns]) + "\n"
        elif number not in file.skipped:
            text += line.strip(_BLANK) + "\n"
    return text


def split_line(line: str, separator: str) -> list[str]:
    """Splits a line; empty where the line has only spaces and tabs."""
    if not line.strip(_BLANK):
        return []
    # Not at all white space: some occurs inside words.
    tabs = separator == "\t"
    return line.split("\t") if tabs else re.split("[ \t]+", line.strip(_BLANK))


def column_index(column: int, width: int) -> int | None:
    """A column's number from 0; None if there are not so many."""
    index = column + width if column < 0 else column
    return index if 0 <= index < width else None


def _columns(count: int, separator: str) -> str:
    name = "tabs" if separator == "\t" else "spaces"
    return f"{count} column{'' if count == 1 else 's'} between {name}"
