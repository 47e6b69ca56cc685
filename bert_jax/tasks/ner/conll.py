"""Sentences in columns, one word per line, as the CoNLL shared tasks write them.

    -DOCSTART- -X- -X- O

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Tabs separate columns, or spaces in a file without tabs. An empty line ends a sentence.
A line that starts with -DOCSTART- starts a document. Before a sentence's first word
there may be comments, as in CoNLL-U and some IOB2 files; a word may still be `#`:

    # newdoc id = weblog-1
    # text = I don't know.
    1	I	I	PRON	...
    2-3	don't	_	_	...
    2	do	do	AUX	...

`# newdoc` starts a document. Where the first column numbers the words, as here, lines
of several words (2-3) and of words that are not in the text (8.1) are skipped.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.data import tables
from bert_jax.data.columns import BY_NAME
from bert_jax.data.lines import read_lines, uncompressed
from bert_jax.errors import UserError

TAGS = ("ner_tags", "ner", "tags")  # a row's column of tags, the first that is there
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

    @property
    def lines(self) -> tuple[int, ...]:
        """The line of each word."""
        there = (n for n in itertools.count(self.line) if n not in self.gaps)
        return tuple(itertools.islice(there, len(self.words)))


class ColumnFile(NamedTuple):
    """A file's raw lines, and the sentences in them."""

    lines: tuple[str, ...]
    separator: str  # a tab or a space
    sentences: tuple[Sentence, ...]
    documents: dict[int, str]  # tags of the -DOCSTART- lines that have one, by line
    width: int  # columns
    skipped: frozenset[int] = frozenset()  # comments and other lines without a word


def read_columns(
    path: str | Path,
    *,
    token_column: int,
    tag_column: int,
    labelled: bool,
    tagged_width: int = 0,
) -> ColumnFile:
    """Reads a file of columns, or a data set by name (hf:eriktks/conll2003:train,
    tfds:conll2003:train), whose rows have `tokens` and one of TAGS.

    Args:
      token_column: from 0; negative ones count from the last column, which is -1. Not
        for a data set by name.
      tag_column: likewise.
      labelled: tags are required. Otherwise a file without a tag column, or with
        words only, has no tags.
      tagged_width: columns of the files that have tags; one with fewer lacks what a
        negative `tag_column` names there.

    Raises:
      UserError: a column is missing; a line has more or fewer columns than the others,
        or no word or tag; the file has no sentence; see also `read_lines`.
    """
    if str(path).startswith(BY_NAME):
        lines, token_column, tag_column = tuple(_of_rows(str(path))), 0, -1
    else:
        lines = tuple(line for _, line in read_lines(path))
    form = _Form.of(lines, token_column)
    if form.words_first and uncompressed(str(path)).endswith(".conllu"):
        raise UserError(
            f"{path}: in CoNLL-U the words are column 1: set config.task.token_column=1"
            ", and for parts of speech config.task.tag_column=3 (UPOS) or 4 (XPOS)"
        )
    columns = _Columns(
        path, form.separator, token_column, tag_column, labelled, tagged_width
    )
    file = _gather(lines, form, columns)
    if not file.sentences:
        raise UserError(f"{path}: has no sentence; write one word per line")
    return file


def _gather(lines: tuple[str, ...], form: "_Form", columns: "_Columns") -> ColumnFile:
    sentences: list[Sentence] = []
    documents: dict[int, str] = {}
    skipped: set[int] = set()
    document = 0
    words: dict[int, str] = {}  # by line
    tags: list[str] = []
    for number, line in enumerate((*lines, ""), 1):
        fields = _fields(line, form.separator)
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
            if index := _index(columns.tag, len(fields)):
                documents[number] = fields[index]
    return ColumnFile(
        *(lines, form.separator, tuple(sentences), documents, columns.width),
        frozenset(skipped),
    )


def _sentence(words: dict[int, str], tags: list[str], document: int) -> Sentence:
    """A sentence of the words by their lines, in order."""
    first, *_, last = (*words, max(words))
    gaps = tuple(n for n in range(first, last) if n not in words)
    known = tuple(tags) if tags else None
    return Sentence(tuple(words.values()), known, document, first, gaps)


def _of_rows(source: str) -> Iterator[str]:
    """The rows of a data set by name as lines of a word, a tab and its tag."""
    for where, fields in tables.read_rows(source, tables.Wanted(("tokens",))):
        words = fields["tokens"]
        tags = next((fields[name] for name in TAGS if name in fields), None)
        if not isinstance(words, list) or not isinstance(tags, list | None):
            raise UserError(f"{where}: the words and the tags must be lists")
        if tags is not None and len(tags) != len(words):
            raise UserError(f"{where}: {len(words)} words, but {len(tags)} tags")
        for place, word in enumerate(words):
            cells = [word] if tags is None else [word, tags[place]]
            if not all(isinstance(cell, str) and cell.strip() for cell in cells):
                raise UserError(f"{where}: word {place} is {cells!r:.60}, not text")
            yield "\t".join(" ".join(cell.split()) for cell in cells)
        yield ""


class _Form(NamedTuple):
    """What tells comments and lines without a word from the others."""

    separator: str
    width: int  # columns
    words_first: bool  # the first column has the words
    numbered: bool  # it numbers them

    @classmethod
    def of(cls, lines: Sequence[str], token_column: int) -> "_Form":
        filled = [line for line in lines if line.strip(_BLANK)]
        # Without what may be a comment, unless there is nothing else.
        sure = [line for line in filled if not line.startswith("#")] or filled
        separator = "\t" if any("\t" in line for line in sure) else " "
        words = (x for x in sure if not x.startswith(_DOCUMENT))
        first = _fields(next(words, ""), separator)
        words_first = _index(token_column, len(first)) == 0
        numbered = not words_first and bool(first and _FIRST.fullmatch(first[0]))
        return cls(separator, len(first), words_first, numbered)

    def is_comment(self, line: str, fields: Sequence[str]) -> bool:
        """Whether it is a comment, if it stands before a sentence's first word."""
        if not line.startswith("#"):
            return False
        whole = len(fields) == self.width
        if line.startswith("# "):
            return not whole or self.separator == "\t" or bool(_NAMED.match(line))
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
    ):
        self._path, self._separator, self._labelled = path, separator, labelled
        self._word, self.tag, self._tagged_width = word, tag, tagged_width
        self.width = self._first = 0

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
        word = _index(self._word, self.width)
        if word is None:
            missing = f"config.task.token_column={self._word} does not exist"
            raise self._columns_error(number, self.width, f"; {missing}")
        tag = _index(self.tag, max(self.width, self._tagged_width))
        if tag is not None and (tag == word or tag >= self.width):
            tag = None
        if self._labelled and tag is None:
            wrong = f"config.task.tag_column={self.tag} is not a column of tags"
            raise self._columns_error(number, self.width, f"; {wrong}")
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
    conlleval requires the same columns on every line; for it comments and lines without
    a word are left out.

    Args:
      tags: one for each word of each sentence.
    """
    added = dict(file.documents)
    for sentence, values in zip(file.sentences, tags, strict=True):
        added |= zip(sentence.lines, values, strict=True)
    return "".join(
        f"{line.rstrip(' ')}{file.separator}{added[number]}\n"
        if number in added
        else f"{line.strip(_BLANK)}\n"
        for number, line in enumerate(file.lines, 1)
        if number not in file.skipped
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
