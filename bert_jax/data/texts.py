"""Texts and pairs with labels, from tables or folders, and a held-out dev set.

A row has `where` (the file and the record's first line), `text`, `text_b` (in a pair),
`group` and `weight` (if one is read), and `label`: a class's name, a number, or a tuple
with the names of all labels that apply. None means that it is unknown. If the labels
are lists of 0 and 1, their names are their indices, and `width` is the number of
labels.
"""

import ast
import itertools
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bert_jax.data.lines import read_lines
from bert_jax.data.tables import ColumnSpec, Row, read_table, require_string
from bert_jax.errors import UserError
from bert_jax.runtime import storage

_UNLABELLED = "unsup"  # IMDb's reviews without a class
# Labels that programs write for an empty field.
_GAPS = ("nan", "#n/a", "n/a", "na", "<na>", "null", "none", "nat", "-nan")
_BITS = {"0": 0, "1": 1, "false": 0, "true": 1}
# Two texts with no comma between, as NumPy shows lists.
_NUMPY = re.compile(r"""(['"])\s+['"]""")


def text_columns(
    text: str,
    text_b: str = "",
    label: str = "",
    group: str = "",
    weight: str = "",
    *,
    labelled: bool,
    form: str = "",
) -> ColumnSpec:
    """Returns the columns of a table of texts, the label's required if `labelled`.

    Args:
      text_b: Empty means single texts.
      group: Empty means none, as for `weight`.
      form: The format: csv, tsv or jsonl. Empty means by the file's ending.
    """
    texts = tuple(name for name in (text, text_b, group, weight) if name)
    if labelled:
        return ColumnSpec((*texts, label), format=form)
    return ColumnSpec(texts, (label,), form)


def read_texts(
    source: str,
    kind: str = "classification",
    *,
    labelled: bool = True,
    text: str = "text",
    text_b: str = "",
    label: str = "label",
    group: str = "",
    weight: str = "",
    separator: str = ",",
    form: str = "",
) -> list[Row]:
    """Reads a table (data/tables.py).

    Args:
      kind: classification, multilabel (a list, which CSV has as Python or NumPy shows
        it, or between separators, and an empty field means that no label applies) or
        regression.
      group: Name of the column of groups (see `hold_out`). Empty means none.
      weight: Name of the column of weights. Empty means none.
      labelled: Whether each record must have a label. Otherwise the column may be
        missing, or a field empty.
      text: Name or number of a column, as `text_b` and `label` are, see `text_columns`.
      separator: Separator between several labels in one field of CSV or TSV.

    Raises:
      UserError: A text is not a string, or a label is empty, of the wrong type or not
        a finite number. The message names file and line.
    """
    names = (text, text_b, label, group, weight)
    columns = text_columns(*names, labelled=labelled, form=form)
    rows = []
    for where, fields in read_table(source, columns):
        row: Row = {"where": where, "text": require_string(fields[text], where, text)}
        if text_b:
            row["text_b"] = require_string(fields[text_b], where, text_b)
        if group and fields[group] in (None, ""):
            raise UserError(f"{where}: the group ({group!r}) is empty; write it")
        if group:
            row["group"] = str(fields[group])
        if weight:
            row["weight"] = _number(fields[weight])
            if not 0 <= row["weight"] < math.inf:
                raise UserError(
                    f"{where}: the weight ({weight!r}) is {fields[weight]!r:.60}; "
                    "write a finite number, at least 0"
                )
        row["label"] = _label(fields.get(label), kind, separator, where)
        if labelled and row["label"] is None:
            raise UserError(
                f"{where}: the label ({label!r}) is empty; write it, or leave the "
                "record out"
            )
        rows.append(row)
    if kind == "multilabel":
        _read_by_index(rows)
    return rows


def _read_by_index(rows: Sequence[Row]) -> None:
    """Names the labels of lists of 0 and 1 by their indices, if all are so and
    of one length, unless 0 and 1 may be the names. Leaves out repeated names."""
    lists = [row["label"] for row in rows if row["label"] is not None]
    names = set(itertools.chain.from_iterable(lists))
    (width, *others) = {*map(len, lists)} or {0}
    are_names = width < 2 or {*lists} == {("0", "1")}
    are_bits = bool(names) and names <= {*_BITS} and not others
    by_index = are_bits and (not are_names or "true" in names)
    for row in rows:
        label = row["label"]
        if by_index and label is not None:
            bits = enumerate(label)
            row["label"] = tuple(str(index) for index, bit in bits if _BITS[bit])
            row["width"] = width
        elif label is not None:
            row["label"] = tuple(dict.fromkeys(label))


def read_folders(folder: str | storage.Path) -> list[Row]:
    """Reads FOLDER/CLASS/*.txt, as IMDb has them, sorted by class and file name.

    An empty file is an empty text.

    Raises:
      UserError: No file matches, or one is not UTF-8.
    """
    rows = []
    for path in sorted(storage.storage_path(folder).glob("*/*.txt")):
        if path.parent.name == _UNLABELLED:
            continue
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"
            ) from error
        rows.append({"where": str(path), "text": text, "label": path.parent.name})
    if not rows:
        raise UserError(
            f"{folder}: has no texts; CLASS/*.txt is required, such as pos/0_9.txt"
        )
    return rows


def film_urls(folder: str | storage.Path, rows: Sequence[Row]) -> list[str] | None:
    """Returns the URL of each review's film, from IMDb's archive.

    Line n (from 0) of urls_CLASS.txt, next to the class folders, is the URL of the film
    that CLASS/n_RATING.txt reviews (the archive's README).

    Args:
      rows: Rows from `read_folders`.

    Returns:
      The URLs, or None where urls_CLASS.txt is missing for a class.
    """
    home = storage.storage_path(folder)
    paths = {label: home / f"urls_{label}.txt" for label in {x["label"] for x in rows}}
    if not all(path.exists() for path in paths.values()):
        return None
    urls = {label: [u for _, u in read_lines(path)] for label, path in paths.items()}
    film_urls = []
    for row in rows:
        number = storage.storage_path(row["where"]).name.partition("_")[0]
        film_urls.append(urls[row["label"]][int(number)])
    return film_urls


def group_name(row: Row) -> str:
    """Returns what rows have in common that one part of the data has: the value of
    their `group`, or else their texts."""
    texts = f"{row['text']}\0{row.get('text_b')}"
    return str(row.get("group", texts))


def hold_out(
    rows: Sequence[Row], fraction: float, groups: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """Splits rows into those to keep and those to hold out, both in order.

    A `label` that is a string is a class, and each class is counted by itself. A tuple,
    as `tags` are, has several names, each of which stays among the kept rows.

    Args:
      fraction: Maximum fraction to hold out of each class, rounded down.
      groups: Name of each row's group. A group stays whole. Groups are drawn by the
        hash of their names, so their order does not matter.
    """
    labels_of = [row.get("label", row.get("tags")) for row in rows]
    classes = [label if isinstance(label, str) else None for label in labels_of]
    names = [label if isinstance(label, tuple) else () for label in labels_of]
    kept = Counter(itertools.chain.from_iterable(names))
    # 100 * 0.29 is 28.999999999999996.
    room = Counter({k: int(n * fraction + 1e-9) for k, n in Counter(classes).items()})
    members: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    held: set[int] = set()
    for group in sorted(members, key=lambda name: sha256(name.encode()).digest()):
        indices = members[group]
        count = Counter(classes[index] for index in indices)
        labels = Counter(itertools.chain.from_iterable(names[i] for i in indices))
        if count <= room and all(kept[name] > n for name, n in labels.items()):
            room -= count
            kept.subtract(labels)
            held.update(indices)
    parts: tuple[list[Row], list[Row]] = ([], [])
    for index, row in enumerate(rows):
        parts[index in held].append(row)
    return parts


def sorted_labels(names: set[str]) -> list[str]:
    """Sorts integers by value, and names alphabetically."""
    if all(re.fullmatch("-?[0-9]{1,18}", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def positive_label(labels: Sequence[str], chosen: str = "") -> str:
    """Returns the class of two that F1 and a threshold are of.

    Args:
      chosen: `task.positive_label`. Empty means the second, by `sorted_labels`.
    """
    if chosen in labels:
        return chosen
    return label_name(chosen) or sorted_labels({*labels})[1]


def label_name(value: str) -> str:
    """Returns a label without white space around it, and 1 for the equal label 1.0."""
    name = value.strip()
    whole = re.fullmatch(r"(-?[0-9]{1,18})\.0*", name)
    return str(int(whole[1])) if whole else name


def label_names(label: Any) -> tuple[str, ...]:
    """Returns the names of a row's label, or labels."""
    return label if isinstance(label, tuple) else (str(label),)


def label_warnings(counts: Mapping[str, int], kind: str) -> list[str]:
    """Returns a line for each label that may be an empty field, for those that look
    alike, and for classes that seem to be scores.

    Args:
      counts: Number of rows of each label.
    """
    alike = defaultdict(list)
    for name in counts:
        plain = unicodedata.normalize("NFKC", name).casefold()
        seen = "".join(x for x in plain if unicodedata.category(x) != "Cf")
        alike[" ".join(seen.split())].append(name)
    groups = [", ".join(map(ascii, x)) for x in alike.values() if len(x) > 1]
    lines = [f"the labels {x} look alike; they are trained as they are" for x in groups]
    lines += [
        f"the label {name!r} of {count} rows is a class; leave them out if it is a gap"
        for name, count in counts.items()
        if name.casefold() in _GAPS
    ]
    numbers = [n for n in counts if re.fullmatch(r"[-+]?[0-9]*[.,]?[0-9]+", n)]
    has_fraction = any(re.search("[.,]", number) for number in numbers)
    seem_scores = has_fraction and len(numbers) >= 0.9 * len(counts)
    if kind == "classification" and seem_scores:
        lines.append(
            "the labels are numbers with fractions, such as "
            f"{max(sorted(numbers), key=len)}, here {len(counts)} classes; if they are "
            "scores, set --config.task.kind=regression"
        )
    return lines


def _label(value: Any, kind: str, separator: str, where: str) -> Any:
    empty = isinstance(value, str) and not value.strip()
    if value is None or (empty and kind != "multilabel"):
        return None
    if kind == "regression":
        return number_label(value, where)
    if kind == "classification":
        return _name(value, where)
    if isinstance(value, str):
        value = [] if empty else _split(value.strip(), separator, where)
    if not isinstance(value, list):
        raise UserError(f"{where}: the labels are {value!r:.60}; write a list of them")
    return tuple(_name(item, where) for item in value)


def _split(field: str, separator: str, where: str) -> list[Any]:
    """Returns the labels in a field of CSV: a list as Python, NumPy or a database shows
    it, or labels between separators."""
    ends = field[:1] + field[-1:]
    if re.match(r"(tensor|array)\(", field) or re.search(r"[\[\s]\.\.\.[\s\]]", field):
        raise UserError(f"{where}: the labels are {field:.60}; write a list of names")
    if ends not in ("[]", "()", "{}"):
        return field.split(separator)
    if _NUMPY.search(field):  # to Python, 'a' 'b' is 'ab'
        return [text for _, text in re.findall(r"""(['"])(.*?)\1""", field)]
    try:
        value = ast.literal_eval(field)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        value = None
    if isinstance(value, list | tuple | set):
        return [*value]
    inner = field[1:-1].strip()
    if ends == "()":
        return field.split(separator)
    if inner[:1] in ("'", '"'):
        raise UserError(f"{where}: the labels are {field:.60}; write a list of names")
    numbers = re.fullmatch(r"(True|False|[\d.\s])*", inner)
    bits = {"True": True, "False": False}
    return [bits.get(x, x) for x in inner.split(None if numbers else separator)]


def number_label(value: Any, where: str) -> float:
    """Returns a label that is a number.

    Raises:
      UserError: It is not a finite number.
    """
    found = _number(value)
    if not math.isfinite(found):
        raise UserError(
            f"{where}: the label is {value!r:.60}; regression needs a finite number, "
            "such as 2.5"
        )
    return found


def _number(value: Any) -> float:
    """Returns a field's number, NaN if it is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


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


def balanced_weights(
    labels: Int[np.ndarray, "rows"], classes: int
) -> Float[np.ndarray, "classes"]:
    """Returns the weights of scikit-learn's class_weight="balanced": rows / (classes
    with rows x rows of the class), and 1 for a class without any."""
    counts = np.bincount(labels, minlength=classes)
    rare = np.maximum(counts, 1) * np.count_nonzero(counts)
    return np.where(counts, len(labels) / rare, 1.0).astype(np.float32)
