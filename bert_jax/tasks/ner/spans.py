"""Texts with entities as spans of characters, as annotation tools write them.

    {"text": "Ana was in Rome.", "entities": [{"start": 11, "end": 15, "label": "LOC"}]}

`end` is the character after the last. Doccano's `start_offset` and `end_offset`, its
`label` with lists, Prodigy's `spans`, and [start, end, label] as in spaCy are read too.
Rows that Prodigy's user has rejected or ignored (`answer`) are left out.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax.data.tables import Row
from bert_jax.data.word_splitting import Spans
from bert_jax.errors import UserError

# A row's field of entities, the first that exists.
NAMES = ("entities", "spans", "label")


class Span(NamedTuple):
    """An entity of a text: its characters [start, end), without space around them."""

    start: int
    end: int
    label: str


def tag_text(where: str, row: Mapping[str, Any], split: Callable[[str], Spans]) -> Row:
    """Returns a row's `text`, its `words`, their `spans` and their `tags` in BIO, which
    are None without entities.

    Args:
      where: Place of the row, for errors.
      split: Function that splits a text into words.

    Raises:
      UserError: The text is none, or an entity is no span of whole words, or overlaps
        another.
    """
    text = row["text"]
    if not isinstance(text, str):
        raise UserError(f"{where}: text: {text!r:.60} is not a string")
    spans = tuple(split(text))
    words = tuple(text[start:end] for start, end in spans)
    found: Row = {"text": text, "spans": spans, "words": words, "tags": None}
    if not words:
        raise UserError(f"{where}: the text has no word; leave the row out")
    name = next((name for name in NAMES if row.get(name) is not None), None)
    if name is None:
        return found
    if not isinstance(row[name], list):
        raise UserError(f"{where}: {name} must be a list, not {row[name]!r:.60}")
    tags = ["O"] * len(words)
    for number, entity in enumerate(row[name]):
        place = f"{where}: {name}[{number}]"
        span = _read_span(place, text, entity)
        inside = [
            index
            for index, (start, end) in enumerate(spans)
            if start < span.end and span.start < end
        ]
        if not inside:
            raise UserError(
                f"{place}: there is no word from {span.start} to {span.end}"
            )
        for index in inside:
            start, end = spans[index]
            if start < span.start or span.end < end:
                raise UserError(
                    f"{place}: {text[span.start : span.end]!r:.60} ({span.start} to "
                    f"{span.end}) cuts the word {words[index]!r:.60} ({start} to {end})"
                    "; correct start and end, or set --config.task.words=characters"
                )
            if tags[index] != "O":
                raise UserError(
                    f"{place}: the word {words[index]!r:.60} ({start} to {end}) is in "
                    "another entity too; leave one out"
                )
        for index in inside:
            tags[index] = f"{'B' if index == inside[0] else 'I'}-{span.label}"
    return {**found, "tags": tuple(tags)}


def _read_span(place: str, text: str, entity: Any) -> Span:
    """Returns an entity of a row, without the white space at its ends."""
    if isinstance(entity, Mapping):
        ends = (entity.get(x, entity.get(f"{x}_offset")) for x in ("start", "end"))
        entity = [*ends, entity.get("label")]
    if not isinstance(entity, list) or len(entity) != 3:
        raise UserError(f"{place}: {entity!r:.60} has no start, end and label")
    start, end, label = entity
    if not (isinstance(label, str) and label.strip() and label.isprintable()):
        raise UserError(f"{place}: its label {label!r:.60} must be a name")
    numbers = all(type(x) is int for x in (start, end))
    if not numbers or not 0 <= start < end <= len(text) or not text[start:end].strip():
        raise UserError(
            f"{place}: start={start!r:.20} and end={end!r:.20} must be a part of the "
            f"text of {len(text)} characters"
        )
    left, right = (len(x) for x in (text[:end].rstrip(), text[start:].lstrip()))
    return Span(len(text) - right, left, label.strip())
