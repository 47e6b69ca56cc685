"""Sentences with tags: in columns, as in the CoNLL shared tasks, or in rows.

    -DOCSTART- -X- -X- O

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Tabs separate columns where most lines have them, otherwise spaces and tabs. An empty
line ends a sentence. A line that starts with -DOCSTART- starts a document. Before a
sentence's first word there may be comments, as in CoNLL-U and some IOB2 files. A word
may still be `#`:

    # newdoc id = weblog-1
    # text = I don't know.
    1	I	I	PRON	...
    2-3	don't	_	_	...
    2	do	do	AUX	...

`# newdoc` starts a document. Where the first column numbers the words, as here, lines
of several words (2-3) and of words that are not in the text (8.1) are skipped.

A row, of JSON, parquet or a data set by name, has words and tags, which may be numbers:

    {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}

The result is rows of `words`, `tags` (None if they are not known), the number of their
`document`, and `places` (the line or row of each word, for errors).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data import tables
from bert_jax.data.lines import read_lines, uncompressed_name
from bert_jax.data.tables import BY_NAME, ColumnSpec, Row
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.tasks.ner import scores

TAGS = ("ner_tags", "ner", "tags")  # a row's column of tags, the first that exists
_DOCUMENT = "-DOCSTART-"
_BLANK = " \t"
_NAMED_COMMENT = re.compile(r"# *[\w.:-]+ *= ")  # such as `# sent_id = 7`
_NEW_DOCUMENT = re.compile(r"# *newdoc\b|###MEDLINE:")  # the latter in JNLPBA's files
_FIRST = re.compile(r"1|1-\d+|0\.1")  # where the first column numbers the words
_WORDLESS = re.compile(r"\d+-\d+|\d+\.\d+")  # such a number's line has no word
_LISTED = 10  # maximum number of labels that an error lists
_HINT = (
    "; name the tags of the numbers from 0, in order: "
    "--config.task.labels=\"('O', 'B-PER', ...)\""
)


class TaggedFile(NamedTuple):
    """The sentences of a file.

    Attributes:
      separator: Separator of its columns: a tab, or a space for spaces and tabs.
      width: Number of columns, 0 for rows.
    """

    sentences: list[Row]
    separator: str = "\t"
    width: int = 0


def read_sentences(
    path: str | Path,
    *,
    token_column: int,
    tag_column: int,
    labelled: bool,
    tagged_width: int = 0,
    labels: Sequence[str] = (),
) -> TaggedFile:
    """Reads a file of columns, or rows of words and tags: JSON, parquet, or a data set
    by name (hf:eriktks/conll2003:train, tfds:conll2003:train).

    Args:
      token_column: Number of the words' column, from 0. Negative ones count from the
        last column, which is -1. Not for rows.
      tag_column: The same for the tags' column.
      labelled: Whether tags are required. Otherwise a file without a tag column, or
        with words only, has no tags.
      tagged_width: Columns of the files that have tags. A file with fewer lacks the
        column that a negative `tag_column` names there.
      labels: Names of tags that are numbers, in rows.

    Raises:
      UserError: A column is missing, a line has more or fewer columns than the others,
        or no word or tag, or the file has no sentence. See also `read_lines`.
    """
    path = str(path)
    if _has_rows(path):
        file = _read_rows(path, labels)
    else:
        lines = [line for _, line in read_lines(path)]
        columns = _Columns(path, lines, token_column)
        columns.find_tags(tag_column, labelled, tagged_width)
        file = TaggedFile(columns.sentences(lines), columns.separator, columns.width)
    if not file.sentences:
        raise UserError(f"{path}: has no sentence; write one word per line")
    if labelled and file.sentences[0]["tags"] is None:
        raise UserError(f"{path}: rows have no tags ({', '.join(TAGS)})")
    return file


class _Columns:
    """A file's columns, and the rules that tell words, comments and other lines
    apart."""

    def __init__(self, path: str, lines: Sequence[str], token_column: int):
        filled = [(n, x) for n, x in enumerate(lines, 1) if x.strip(_BLANK)]
        # Without possible comments, unless there is nothing else.
        sure = [(n, x) for n, x in filled if not x.startswith("#")] or filled
        with_tab = sum("\t" in line for _, line in sure)
        self.separator = "\t" if 2 * with_tab >= len(sure) > 0 else " "
        words = (line for line in sure if not line[1].startswith(_DOCUMENT))
        self.first, first = next(words, (1, ""))
        fields = split_line(first, self.separator)
        self.path, self.width = path, len(fields)
        self.word = column_index(token_column, self.width)
        self.numbered = bool(self.word and _FIRST.fullmatch(fields[0]))
        self.tag: int | None = None
        if self.width and self.word is None:
            what = f"; config.task.token_column={token_column} does not exist"
            raise self._error(self.first, self.width, what)

    def find_tags(self, tag_column: int, labelled: bool, tagged_width: int) -> None:
        """Sets the column of tags, with arguments as in `read_sentences`."""
        if self.word == 0 and uncompressed_name(self.path).endswith(".conllu"):
            raise UserError(
                f"{self.path}: in CoNLL-U the words are column 1: set "
                "config.task.token_column=1, and for parts of speech "
                "config.task.tag_column=3 (UPOS) or 4 (XPOS)"
            )
        tag = column_index(tag_column, max(self.width, tagged_width))
        if tag is not None and tag < self.width and tag != self.word:
            self.tag = tag
        if self.width and labelled and self.tag is None:
            what = f"; config.task.tag_column={tag_column} is not a column of tags"
            raise self._error(self.first, self.width, what)

    def sentences(self, lines: Sequence[str]) -> list[Row]:
        """Reads the sentences."""
        sentences: list[Row] = []
        document = 0
        words: dict[int, tuple[str, ...]] = {}  # and their tags, by line
        for number, line in enumerate((*lines, ""), 1):
            fields = split_line(line, self.separator)
            if not words and self._is_comment(line, fields):
                document += bool(_NEW_DOCUMENT.match(line))
            elif not fields or fields[0].startswith(_DOCUMENT):
                if words:
                    columns = list(zip(*words.values(), strict=True))
                    tags = columns[1] if len(columns) > 1 else None
                    sentences.append(_sentence(columns[0], tags, document, words))
                    words = {}
                document += bool(fields)
            elif not (self.numbered and _WORDLESS.fullmatch(fields[0])):
                words[number] = self._word(fields, number)
        return sentences

    def _is_comment(self, line: str, fields: Sequence[str]) -> bool:
        """Returns whether it is a comment, if it is before a sentence's first word."""
        if not line.startswith("#"):
            return False
        whole = len(fields) == self.width
        if line.startswith("# "):
            has_tab = "\t" in f"{self.separator}{line}"
            return not whole or has_tab or bool(_NAMED_COMMENT.match(line))
        return not whole and (line.startswith("##") or self.word != 0)

    def _word(self, fields: Sequence[str], number: int) -> tuple[str, ...]:
        """Returns the word of a line and, if there is one, its tag."""
        assert self.word is not None
        if len(fields) != self.width:
            there = f", but line {self.first} has {self.width}; fix the line"
            raise self._error(number, len(fields), there)
        if not fields[self.word]:
            raise UserError(f"{self.path}:{number}: the word is empty; fix the line")
        if self.tag is None:
            return (fields[self.word],)
        tag = fields[self.tag].strip(" ")
        if not tag:
            raise UserError(f"{self.path}:{number}: the tag is empty; fix the line")
        return fields[self.word], tag

    def _error(self, number: int, count: int, text: str) -> UserError:
        between = "tabs" if self.separator == "\t" else "spaces"
        columns = f"{count} column{'' if count == 1 else 's'} between {between}"
        return UserError(f"{self.path}:{number}: {columns}{text}")


def _sentence(
    words: Sequence[str],
    tags: Sequence[str] | None,
    document: int,
    places: Iterable[int],
) -> Row:
    return {
        "words": tuple(words),
        "tags": None if tags is None else tuple(tags),
        "document": document,
        "places": tuple(places),
    }


def split_line(line: str, separator: str) -> list[str]:
    """Splits a line. The result is empty if it has only spaces and tabs."""
    if not line.strip(_BLANK):
        return []
    # Not at all white space: some occurs inside words.
    tabs = separator == "\t"
    return line.split("\t") if tabs else re.split("[ \t]+", line.strip(_BLANK))


def column_index(column: int, width: int) -> int | None:
    """Returns a column's number from 0, or None if there are fewer columns."""
    index = column + width if column < 0 else column
    return index if 0 <= index < width else None


def _is_table(path: str) -> bool:
    return path.startswith(BY_NAME) or path.endswith(".parquet")


def _has_rows(path: str) -> bool:
    """Returns whether a file or data set has rows, not lines of columns."""
    if _is_table(path) or uncompressed_name(path).endswith((".jsonl", ".json")):
        return True
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    return first.lstrip().startswith('{"')


def _read_rows(path: str, labels: Sequence[str]) -> TaggedFile:
    sentences: list[Row] = []
    for number, where, fields in _numbered(path):
        words, tags = _words(where, fields, labels)
        if not words:
            continue
        if sentences and (tags is None) != (sentences[0]["tags"] is None):
            raise UserError(
                f"{where}: only some rows have tags ({', '.join(TAGS)}); give all of "
                "them tags, or none in a test file"
            )
        sentences.append(_sentence(words, tags, 0, [number] * len(words)))
    return TaggedFile(sentences)


def _numbered(path: str) -> Iterator[tuple[int, str, Row]]:
    """Yields each row's number from 1, location for errors, and fields."""
    records: Iterable[tuple[str, Any]] = tables.read_rows(
        path, ColumnSpec(format="jsonl")
    )
    if not _is_table(path):
        text = "\n".join(line for _, line in read_lines(path)).lstrip()
        if text.startswith("["):  # one list of rows
            rows = enumerate(untrusted.parse_json(text, path), 1)
            records = ((f"{path}:{number}", row) for number, row in rows)
    for where, row in records:
        if not isinstance(row, dict) or "tokens" not in row:
            raise UserError(
                f"{where}: not a row of words; write one object per line, such as "
                '{"tokens": ["EU"], "ner_tags": ["B-ORG"]}'
            )
        yield int(where.rpartition(":")[2]), where, row


def _words(
    where: str, row: Row, labels: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Returns a row's words and tags, each without white space but single spaces."""
    words = row["tokens"]
    tags = next((row[name] for name in TAGS if name in row), None)
    if not isinstance(words, list) or not isinstance(tags, list | None):
        raise UserError(f"{where}: the words and the tags must be lists")
    if tags is not None and len(tags) != len(words):
        raise UserError(f"{where}: {len(words)} words, but {len(tags)} tags")
    cells = [words] if tags is None else [words, [_named(tag, labels) for tag in tags]]
    for index, both in enumerate(zip(*cells, strict=True)):
        if not all(isinstance(cell, str) and cell.strip() for cell in both):
            hint = _HINT if isinstance(both[-1], int) else ""
            raise UserError(f"{where}: word {index} is {both!r:.60}, not text{hint}")
    texts = [tuple(" ".join(cell.split()) for cell in column) for column in cells]
    return texts[0], None if tags is None else texts[1]


def _named(tag: Any, labels: Sequence[str]) -> Any:
    """Returns the name of a tag that is a number, and other tags as they are."""
    if isinstance(tag, int) and not isinstance(tag, bool) and 0 <= tag < len(labels):
        return labels[tag]
    return tag


def as_columns(file: TaggedFile, tags: Sequence[Sequence[str]]) -> str:
    """Returns a line for each word of a file, as conlleval reads them: the word, its
    tag in the file (if it has tags) and that of `tags`. An empty line separates
    sentences."""
    blocks = []
    for sentence, guessed in zip(file.sentences, tags, strict=True):
        gold = sentence["tags"]
        columns = [sentence["words"], *([gold] if gold else []), guessed]
        rows = zip(*columns, strict=True)
        blocks.append("".join(f"{file.separator.join(row)}\n" for row in rows))
    return "\n".join(blocks)


def check_labels(labels: Sequence[str]) -> None:
    """Raises UserError if a label of the config or the weights is not a tag."""
    for label in labels:
        if not scores.is_tag(label):
            rest = ", ..." if len(labels) > _LISTED else ""
            raise UserError(
                f"config.task.labels: {label!r} has no prefix such as B- or I- (the "
                f"model's outputs are {', '.join(labels[:_LISTED])}{rest}); name the "
                "tags in the weights' order, --config.task.labels=\"('O', 'B-PER', "
                '...)", or for plain tags set --config.task.scheme=none'
            )


def check_columns(path: str, file: TaggedFile, *, in_entities: bool) -> None:
    """Checks that words are not the numbers of words, and that tags are tags.

    Args:
      in_entities: Whether each tag must be O or have a prefix such as B-.

    Raises:
      UserError: They are not. The message has the line's columns.
    """
    words = [sentence["words"] for sentence in file.sentences]
    if all(map(_are_numbered, words)) and any(len(each) > 1 for each in words):
        place = file.sentences[0]["places"][0]
        raise _wrong_columns(path, file, place, "the words are numbers")
    for sentence in file.sentences if in_entities else ():
        for place, tag in zip(sentence["places"], sentence["tags"] or (), strict=False):
            if not scores.is_tag(tag):
                fault = (
                    f"the tag {tag!r} has no prefix such as B- or I-; correct it, or "
                    "for plain tags set --config.task.scheme=none"
                )
                raise _wrong_columns(path, file, place, fault)


def _wrong_columns(path: str, file: TaggedFile, place: int, fault: str) -> UserError:
    if file.width:
        line = next(line for number, line in read_lines(path) if number == place)
        fields = enumerate(split_line(line, file.separator))
        columns = ", ".join(f"{number} {field!r:.40}" for number, field in fields)
        fault += (
            f" (the line's columns are {columns}; --config.task.token_column and "
            "--config.task.tag_column name those of words and tags)"
        )
    return UserError(f"{path}:{place}: {fault}")


def _are_numbered(words: Sequence[str]) -> bool:
    """Returns whether they are 1, 2, ... or 0, 1, ..., except CoNLL-U's 1-2 and 1.1."""
    numbers = [word for word in words if not re.fullmatch(r"\d+[-.]\d+", word)]
    counts = [[str(first + n) for n in range(len(numbers))] for first in (0, 1)]
    return numbers in counts
