"""Sentences with tags: in columns, as in the CoNLL shared tasks, or in rows.

    -DOCSTART- -X- -X- O

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Tabs separate columns where most lines have them, otherwise spaces and tabs. An empty
line ends a sentence. A line that starts with -DOCSTART- starts a document. Before a
sentence's first word there may be comments, as in CoNLL-U and some IOB2 files. A word
may still be `#`. Rows are in .jsonl, .parquet or a data set by name:

    {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}

or texts with spans (spans.py). The result is rows of `words`, `tags` (None if they are
not known), the number of their `document`, and `places` (the line or row of each word,
for errors). Those of a text also have the `text` and the `spans` of its words.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bert_jax.data import tables
from bert_jax.data.lines import read_lines, uncompressed_name
from bert_jax.data.tables import BY_NAME, ColumnSpec, Row
from bert_jax.data.word_splitting import Spans, bert_words
from bert_jax.errors import UserError
from bert_jax.tasks.ner import scores, spans

TAGS = ("ner_tags", "ner", "tags")  # a row's column of tags, the first that exists
_DOCUMENT = "-DOCSTART-"
_BLANK = " \t"
_NAMED_COMMENT = re.compile(r"# *[\w.:-]+ *= ")  # such as `# sent_id = 7`
_NEW_DOCUMENT = re.compile(r"# *newdoc\b|###MEDLINE:")  # the latter in JNLPBA's files
_FIRST = re.compile(r"1|1-\d+|0\.1")  # where the first column numbers the words
_WORDLESS = re.compile(r"\d+[-.]\d+")  # the number of a CoNLL-U line without a word
_COLUMNS = "config.task.token_column and config.task.tag_column name the columns"


def read_sentences(
    path: str | Path,
    *,
    token_column: int,
    tag_column: int,
    labelled: bool,
    split: Callable[[str], Spans] = bert_words,
    labels: Sequence[str] = (),
) -> list[Row]:
    """Reads a file of columns, or rows of words and tags or of texts with spans: JSON
    lines, parquet, or a data set by name (hf:eriktks/conll2003:train,
    tfds:conll2003:train).

    Args:
      token_column: Number of the words' column, from 0. Negative ones count from the
        last column, which is -1. Not for rows.
      tag_column: The same for the tags' column.
      labelled: Whether tags are required. Otherwise a file without a tag column, or
        with words only, has no tags.
      split: Function that splits the text of a row with spans into words.
      labels: Names of tags that are numbers, in rows.

    Raises:
      UserError: A column is missing, a line has more or fewer columns than the others,
        or no word or tag, or the file has no sentence. See also `read_lines`.
    """
    path = str(path)
    name = uncompressed_name(path)
    if path.startswith(BY_NAME) or name.endswith((".jsonl", ".json", ".parquet")):
        sentences = _read_rows(path, split, labels)
    else:
        sentences = _read_columns(path, token_column, tag_column)
    if not sentences:
        raise UserError(f"{path}: has no sentence; write one word per line")
    bare = next((row for row in sentences if row["tags"] is None), None)
    if labelled and bare:
        raise UserError(
            f"{path}:{bare['places'][0]}: has no tags: config.task.tag_column="
            f"{tag_column} is not a column of tags, or the row has none of "
            f"{', '.join((*TAGS, *spans.NAMES))}"
        )
    return sentences


def _read_columns(path: str, token_column: int, tag_column: int) -> list[Row]:
    lines = [line for _, line in read_lines(path)]
    filled = [(n, x) for n, x in enumerate(lines, 1) if x.strip(_BLANK)]
    # Without possible comments, unless there is nothing else.
    sure = [(n, x) for n, x in filled if not x.startswith("#")] or filled
    separator = "\t" if 2 * sum("\t" in x for _, x in sure) >= len(sure) > 0 else " "
    words_lines = (line for line in sure if not line[1].startswith(_DOCUMENT))
    first, first_line = next(words_lines, (1, ""))
    width = len(_split(first_line, separator))
    numbers = _split(first_line, separator)[:1]  # of the words, in CoNLL-U
    word = _index(token_column, width)
    tag = _index(tag_column, width)
    if width and word is None:
        raise UserError(
            f"{path}:{first}: config.task.token_column={token_column} does not exist: "
            f"the line has {_count(width, separator)}"
        )
    if tag == word:
        tag = None
    numbered = bool(word and numbers and _FIRST.fullmatch(numbers[0]))

    def is_comment(line: str, fields: Sequence[str]) -> bool:
        """Returns whether it is a comment, if it is before a sentence's first word."""
        if line.startswith("# "):
            has_tab = "\t" in f"{separator}{line}"
            if has_tab or _NAMED_COMMENT.match(line):
                return True
        marked = line.startswith(("# ", "##")) or (bool(word) and line.startswith("#"))
        return marked and len(fields) != width

    sentences: list[Row] = []
    document = 0
    words: dict[int, tuple[str, ...]] = {}  # and their tags, by line
    for number, line in enumerate((*lines, ""), 1):
        fields = _split(line, separator)
        if not words and is_comment(line, fields):
            document += bool(_NEW_DOCUMENT.match(line))
        elif not fields or fields[0].startswith(_DOCUMENT):
            if words:
                found = list(zip(*words.values(), strict=True))
                tags = found[1] if len(found) > 1 else None
                sentences.append(_sentence(found[0], tags, document, words))
                words = {}
            document += bool(fields)
        elif not (numbered and _WORDLESS.fullmatch(fields[0])):
            if len(fields) != width:
                raise UserError(
                    f"{path}:{number}: {_count(len(fields), separator)}, but line "
                    f"{first} has {width}; fix the line"
                )
            cells = (fields[word or 0],)
            words[number] = cells if tag is None else (*cells, fields[tag].strip(" "))
            if not all(words[number]):
                raise UserError(f"{path}:{number}: the word or the tag is empty")
    return sentences


def _sentence(
    words: Iterable[str],
    tags: Iterable[str] | None,
    document: int,
    places: Iterable[int],
) -> Row:
    return {
        "words": tuple(words),
        "tags": None if tags is None else tuple(tags),
        "document": document,
        "places": tuple(places),
    }


def _split(line: str, separator: str) -> list[str]:
    """Splits a line. The result is empty if it has only spaces and tabs."""
    if not line.strip(_BLANK):
        return []
    # Not at all white space: some occurs inside words.
    tabs = separator == "\t"
    return line.split("\t") if tabs else re.split("[ \t]+", line.strip(_BLANK))


def _index(column: int, width: int) -> int | None:
    """Returns a column's number from 0, or None if there are fewer columns."""
    index = column + width if column < 0 else column
    return index if 0 <= index < width else None


def _count(columns: int, separator: str) -> str:
    between = "tabs" if separator == "\t" else "spaces"
    return f"{columns} column{'' if columns == 1 else 's'} between {between}"


def _read_rows(
    path: str, split: Callable[[str], Spans], labels: Sequence[str]
) -> list[Row]:
    sentences: list[Row] = []
    for where, row in tables.read_rows(path, ColumnSpec(format="jsonl")):
        number = int(where.rpartition(":")[2])
        words = row.get("tokens", row.get("words"))
        if "text" in row and (words is None or any(x in row for x in spans.NAMES)):
            if row.get("answer") not in ("reject", "ignore"):
                found = spans.tag_text(where, row, split)
                places = (number,) * len(found["words"])
                sentences.append({**found, "document": 0, "places": places})
            continue
        if words is None:
            raise UserError(
                f"{where}: has no tokens (and {', '.join(TAGS)}), and no text (and "
                "entities)"
            )
        tags = next((row[name] for name in TAGS if name in row), None)
        if not words:
            continue
        if not isinstance(words, list) or not isinstance(tags, list | None):
            raise UserError(f"{where}: the words and the tags must be lists")
        if tags is not None:
            tags = [  # a number is a label's
                labels[tag] if type(tag) is int and 0 <= tag < len(labels) else tag
                for tag in tags
            ]
        # Without white space but single spaces, which a blank word is: it has no token.
        texts = [
            [" ".join(each.split()) if isinstance(each, str) else "" for each in column]
            for column in (words, () if tags is None else tags)
        ]
        blank = [isinstance(word, str) and not word.strip() for word in words]
        texts[0] = [" " if b else x for x, b in zip(texts[0], blank, strict=True)]
        texts[1] = texts[0] if tags is None else texts[1]
        if len(texts[0]) != len(texts[1]) or not all(map(all, texts)):
            raise UserError(
                f"{where}: {len(words)} words and {len(texts[1])} tags; each word must "
                "be a text, with a tag that is one, or a number with its name in "
                "config.task.labels=\"('O', 'B-PER', ...)\""
            )
        named = None if tags is None else texts[1]
        sentences.append(_sentence(texts[0], named, 0, [number] * len(words)))
    return sentences


def format_columns(sentences: Sequence[Row], tags: Sequence[Sequence[str]]) -> str:
    """Returns a line for each word, for conlleval: the word, its tag in the file (if it
    has tags) and that of `tags`, between tabs. An empty line separates sentences."""
    blocks = []
    for sentence, guessed in zip(sentences, tags, strict=True):
        gold = sentence["tags"]
        columns = [sentence["words"], *([gold] if gold else []), guessed]
        rows = zip(*columns, strict=True)
        blocks.append("".join("\t".join(row) + "\n" for row in rows))
    return "\n".join(blocks)


def check_labels(labels: Sequence[str]) -> None:
    """Raises UserError if a label of the config or the weights is not a tag."""
    for label in labels:
        if not scores.is_tag(label):
            raise UserError(
                f"config.task.labels: {label!r} has no prefix such as B- or I- (the "
                f"model's outputs are {', '.join(labels):.200}); name the "
                "tags in the weights' order, --config.task.labels=\"('O', 'B-PER', "
                '...)", or for plain tags set --config.task.scheme=none'
            )


def check_columns(path: str, sentences: Sequence[Row], *, has_entities: bool) -> None:
    """Checks that words are not the numbers of words, and that tags are tags.

    Args:
      has_entities: Whether each tag must be O or have a prefix such as B-.

    Raises:
      UserError: They are not.
    """
    words = [sentence["words"] for sentence in sentences]
    # Without CoNLL-U's 1-2 and 1.1.
    plain = ([x for x in column if not _WORDLESS.fullmatch(x)] for column in words)
    are_numbers = all(
        column in ([str(first + n) for n in range(len(column))] for first in (0, 1))
        for column in plain
    )
    if are_numbers and any(len(column) > 1 for column in words):
        place = sentences[0]["places"][0]
        raise UserError(f"{path}:{place}: the words are numbers; {_COLUMNS}, from 0")
    for sentence in sentences if has_entities else ():
        for place, tag in zip(sentence["places"], sentence["tags"] or (), strict=False):
            if not scores.is_tag(tag):
                raise UserError(
                    f"{path}:{place}: the tag {tag!r} has no prefix such as B- or I-; "
                    f"correct it ({_COLUMNS}, from 0), or for plain tags set "
                    "--config.task.scheme=none"
                )
