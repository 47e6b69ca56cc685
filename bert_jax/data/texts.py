"""Texts and pairs with their labels: from tables, or from a folder for each class."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from bert_jax.data.tables import Record, as_text, read_table
from bert_jax.errors import UserError

# A class's name, a number, or the names of all labels that hold; None if not known.
Label = str | float | tuple[str, ...] | None


class LabelledText(NamedTuple):
    """A text, or a pair, as it stands in a file."""

    where: str  # the file and the line it begins in
    text: str
    text_b: str | None
    label: Label


class Columns(NamedTuple):
    """What a table's columns are called."""

    text: str
    text_b: str  # empty: single texts
    label: str
    separator: str  # between several labels in one field of CSV or TSV


def read_texts(
    source: str, columns: Columns, kind: str, labelled: bool
) -> list[LabelledText]:
    """Reads a table (data/tables.py).

    Args:
      kind: classification, multilabel (in JSON lines a list; an empty field says that
        no label holds) or regression.
      labelled: each record must have its label; otherwise the column may be missing,
        or a field empty.

    Raises:
      UserError: file and line, where a text is no string, or a label is empty, of the
        wrong form, or no finite number.
    """
    wanted = [columns.text, columns.text_b, columns.label if labelled else ""]
    texts = []
    for record in read_table(source, [column for column in wanted if column]):
        where, fields = record
        text = as_text(fields[columns.text], where, columns.text)
        text_b = None
        if columns.text_b:
            text_b = as_text(fields[columns.text_b], where, columns.text_b)
        label = _label(record, columns, kind)
        if labelled and label is None:
            raise UserError(
                f"{where}: the label ({columns.label!r}) is empty; write it, or leave "
                "the record out"
            )
        texts.append(LabelledText(where, text, text_b, label))
    return texts


def hold_out(
    texts: Sequence[LabelledText], fraction: float, groups: Sequence[str] | None = None
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Divides texts: those that are kept, and those that are held out, in their order.

    Args:
      fraction: of each class's texts, rounded down, at most.
      groups: for each text the name of its group, which stays whole; the groups are
        drawn by the hash of their names, so that their order makes no difference. None:
        the last texts of each class are held out.
    """
    left = Counter(text.label for text in texts)
    held = {label: int(count * fraction) for label, count in left.items()}
    parts: tuple[list[LabelledText], list[LabelledText]] = ([], [])
    if groups is not None:
        drawn = _draw(texts, groups, held)
        for text, group in zip(texts, groups, strict=True):
            parts[group in drawn].append(text)
        return parts
    for text in texts:
        parts[left[text.label] <= held[text.label]].append(text)
        left[text.label] -= 1
    return parts


def _draw(
    texts: Sequence[LabelledText], groups: Sequence[str], held: Mapping[Label, int]
) -> set[str]:
    """As many groups as there is room for; `held` is the room of each class."""
    room, drawn = Counter(held), set()
    labels: dict[str, Counter[Label]] = {}
    for text, group in zip(texts, groups, strict=True):
        labels.setdefault(group, Counter())[text.label] += 1
    for group in sorted(labels, key=lambda name: sha256(name.encode()).digest()):
        if labels[group] <= room:
            room -= labels[group]
            drawn.add(group)
    return drawn


def sorted_labels(names: set[str]) -> list[str]:
    """Integers by their value, names by their letters."""
    if all(re.fullmatch("-?[0-9]{1,18}", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def _label(record: Record, columns: Columns, kind: str) -> Label:
    where, fields = record
    value = fields.get(columns.label)
    empty = isinstance(value, str) and not value.strip()
    if value is None or (empty and kind != "multilabel"):
        return None
    if kind == "regression":
        return _number(value, where)
    if kind == "classification":
        return _name(value, where)
    if empty:
        return ()
    if isinstance(value, str):
        value = [part.strip() for part in value.split(columns.separator)]
    if not isinstance(value, list):
        raise UserError(f"{where}: the labels are {value!r:.60}; write a list of them")
    return tuple(dict.fromkeys(_name(item, where) for item in value))


def _number(value: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"{where}: the label is {value!r:.60}; of a regression it must be a finite "
            "number"
        )
    return number


def _name(value: Any, where: str) -> str:
    if isinstance(value, int):  # of JSON, true and false included
        return json.dumps(value)
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"{where}: the label is {value!r:.60}; it must be a name or an integer "
            "(config.task.kind: multilabel for lists, regression for numbers)"
        )
    return as_text(value, where, "label")
