"""Texts and text pairs with labels: reads tables, holds out a dev set."""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from bert_jax.data.columns import Wanted
from bert_jax.data.tables import Record, as_text, read_table
from bert_jax.errors import UserError

# A class's name, a number, or the names of all labels that apply; None if unknown.
Label = str | float | tuple[str, ...] | None


class LabelledText(NamedTuple):
    """A text, or a pair, as the file has it."""

    where: str  # the file and the record's first line
    text: str
    text_b: str | None
    label: Label


class Columns(NamedTuple):
    """The columns of a table: their names, or their numbers if it has no header."""

    text: str
    text_b: str  # empty: single texts
    label: str
    separator: str = ","  # between several labels in one field of CSV or TSV
    format: str = ""  # csv, tsv or jsonl; empty: by the file's ending

    def wanted(self, labelled: bool) -> Wanted:
        """The columns to read; that of the label is required only if `labelled`."""
        texts = (self.text, self.text_b) if self.text_b else (self.text,)
        label = (self.label,)
        if labelled:
            return Wanted((*texts, *label), format=self.format)
        return Wanted(texts, label, self.format)


def read_texts(
    source: str, columns: Columns, kind: str, labelled: bool
) -> list[LabelledText]:
    """Reads a table (data/tables.py).

    Args:
      kind: classification, multilabel (in JSON lines a list; an empty field means no
        label applies) or regression.
      labelled: each record must have a label; otherwise the column may be missing, or
        a field empty.

    Raises:
      UserError: a text is not a string, or a label is empty, of the wrong type or not
        a finite number; names file and line.
    """
    texts = []
    for record in read_table(source, columns.wanted(labelled)):
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
    texts: Sequence[LabelledText],
    fraction: float,
    groups: Sequence[str] | None = None,
    *,
    by_class: bool = True,
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Splits texts into those to keep and those to hold out, both in order.

    Args:
      fraction: maximum share to hold out of each class, rounded down.
      groups: the name of each text's group; a group stays whole. Groups are drawn by
        the hash of their names, so their order does not matter. Of several labels
        each stays in what is kept. None: holds out the last texts of each class.
      by_class: False: of all texts together, whatever their labels.
    """
    classes = [text.label if by_class else None for text in texts]
    names = [text.label if isinstance(text.label, tuple) else () for text in texts]
    left = Counter(classes)
    # 100 * 0.29 is 28.999999999999996.
    held = {label: int(count * fraction + 1e-9) for label, count in left.items()}
    parts: tuple[list[LabelledText], list[LabelledText]] = ([], [])
    if groups is not None:
        drawn = _draw(classes, names, groups, held)
        for text, group in zip(texts, groups, strict=True):
            parts[group in drawn].append(text)
        return parts
    for text, label in zip(texts, classes, strict=True):
        parts[left[label] <= held[label]].append(text)
        left[label] -= 1
    return parts


def _draw(
    classes: Sequence[Label],
    names: Sequence[Sequence[str]],
    groups: Sequence[str],
    held: Mapping[Label, int],
) -> set[str]:
    """Draws as many groups as fit; `held` is the room in each class."""
    room, drawn = Counter(held), set()
    labels: dict[str, Counter[Label]] = {}
    group_labels: dict[str, Counter[str]] = {}
    for label, several, group in zip(classes, names, groups, strict=True):
        labels.setdefault(group, Counter())[label] += 1
        group_labels.setdefault(group, Counter()).update(several)
    kept = Counter(itertools.chain.from_iterable(names))
    for group in sorted(labels, key=lambda name: sha256(name.encode()).digest()):
        stay = all(kept[name] > count for name, count in group_labels[group].items())
        if labels[group] <= room and stay:
            room -= labels[group]
            kept.subtract(group_labels[group])
            drawn.add(group)
    return drawn


def sorted_labels(names: set[str]) -> list[str]:
    """Sorts integers by value, and names alphabetically."""
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
            f"{where}: the label is {value!r:.60}; regression needs a finite number, "
            "such as 2.5"
        )
    return number


def label_name(value: str) -> str:
    """Returns a label without white space around it; 1.0 is the same label as 1."""
    name = value.strip()
    whole = re.fullmatch(r"(-?[0-9]{1,18})\.0*", name)
    return str(int(whole[1])) if whole else name


def seem_scores(names: Collection[str]) -> bool:
    """Whether nearly all labels are numbers, and some of them have a fraction."""
    numbers = [n for n in names if re.fullmatch(r"[-+]?[0-9]*[.,]?[0-9]+", n)]
    has_fraction = any(re.search("[.,]", number) for number in numbers)
    return has_fraction and len(numbers) >= 0.9 * len(names)


def _name(value: Any, where: str) -> str:
    if isinstance(value, int):  # from JSON, true and false included
        return json.dumps(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"{where}: the label is {value!r:.60}; it must be a name or an integer "
            "(config.task.kind: multilabel for lists, regression for numbers)"
        )
    return label_name(value)
