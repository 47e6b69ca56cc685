"""Checks words, tags and labels; finds the columns of a file that have the former."""

import re
from collections.abc import Sequence

from bert_jax.errors import UserError
from bert_jax.tasks.ner import scores
from bert_jax.tasks.ner.conll import ColumnFile, column_index, split_line

_NUMBER = re.compile(r"[\d.,:/-]+")
_NAMED = 10  # the most labels that an error lists


def check_labels(labels: Sequence[str]) -> None:
    """Raises UserError if a label of the config or the weights is not a tag."""
    for label in labels:
        if not scores.is_tag(label):
            rest = ", ..." if len(labels) > _NAMED else ""
            raise UserError(
                f"config.task.labels: {label!r} has no prefix such as B- or I- (the "
                f"model's outputs are {', '.join(labels[:_NAMED])}{rest}); name the "
                "tags in the weights' order, --config.task.labels=\"('O', 'B-PER', "
                '...)", or for plain tags set --config.task.scheme=none'
            )


def check_columns(
    path: str,
    file: ColumnFile,
    *,
    token_column: int,
    tag_column: int,
    in_entities: bool,
) -> None:
    """Checks that words are not the numbers of words, and that tags are tags.

    Args:
      token_column: the column that the words were read from.
      tag_column: the column that the tags were read from.
      in_entities: each tag must be O or have a prefix such as B-.

    Raises:
      UserError: they are not; names the columns that look like words and tags.
    """
    words = [sentence.words for sentence in file.sentences]
    if all(map(_are_numbered, words)) and any(len(each) > 1 for each in words):
        place = file.sentences[0].places[0]
        raise UserError(
            f"{path}:{place}: config.task.token_column={token_column} has the numbers "
            f"of the words{_advice(file, token_column, tag_column)}"
        )
    for sentence in file.sentences if in_entities else ():
        for place, tag in zip(sentence.places, sentence.tags or (), strict=False):
            if not scores.is_tag(tag):
                raise UserError(
                    f"{path}:{place}: the tag {tag!r} has no prefix such as B- or I-"
                    f"{_advice(file, token_column, tag_column)}"
                )


def _are_numbered(words: Sequence[str]) -> bool:
    """Whether they are 1, 2, ... or 0, 1, ..., besides CoNLL-U's 1-2 and 1.1."""
    numbers = [word for word in words if not re.fullmatch(r"\d+[-.]\d+", word)]
    counts = [[str(first + n) for n in range(len(numbers))] for first in (0, 1)]
    return numbers in counts


def _advice(file: ColumnFile, token_column: int, tag_column: int) -> str:
    """The columns that look like words and tags, and the flags that name them."""
    rows = [
        split_line(file.lines[line - 1], file.separator)
        for sentence in file.sentences
        for line in sentence.lines
    ]
    columns = list(zip(*rows, strict=True))
    tags = [n for n, column in enumerate(columns) if _are_tags(column)]
    different = [
        0 if n in tags or all(map(_NUMBER.fullmatch, column)) else len(set(column))
        for n, column in enumerate(columns)
    ]
    # CoNLL-U's lemmas and dependencies may be as many, but are after the words.
    word = next(n for n, count in enumerate(different) if 2 * count >= max(different))
    look, flags = [], ""
    right = [column_index(n, len(columns)) for n in (token_column, tag_column)]
    if word != right[0]:
        look.append(f"column {word} looks like the words ({columns[word][0]!r:.40})")
        flags += f" --config.task.token_column={word}"
    elif right[1] in tags:
        return ", as others of its column have; fix the line"
    if tags:
        example = next(filter(_has_type, columns[tags[-1]]))
        look.append(f"column {tags[-1]} looks like the tags ({example!r:.40})")
        flags += f" --config.task.tag_column={tags[-1]}"
    else:
        look.append(
            "no column looks like tags of entities; for plain tags, such as "
            "parts of speech, name their column with --config.task.tag_column"
        )
        flags += " --config.task.scheme=none"
    return f": {' and '.join(look)}; set{flags}"


def _are_tags(values: Sequence[str]) -> bool:
    """Whether nearly all are tags, some of them of entities."""
    count = sum(map(scores.is_tag, values))
    return count >= 0.9 * len(values) and any(map(_has_type, values))


def _has_type(value: str) -> bool:
    return "-" in value and scores.is_tag(value)
