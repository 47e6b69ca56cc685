"""The ten tasks of GLUE: what they are, and their records from TSV files, TFDS or the
Hugging Face Hub.

The files are gluebenchmark.com's: one record per line, fields separated by tabs. Quotes
are text, as in Google's run_classifier.py and TFDS, even in QQP, where CSV's quotes
surround some fields. The first line names the columns.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path as LocalPath
from typing import Any, NamedTuple

from bert_jax.data.lines import read_lines
from bert_jax.data.sources import hub as hub_source
from bert_jax.data.sources import tfds as tfds_source
from bert_jax.data.tables import as_text
from bert_jax.errors import UserError
from bert_jax.runtime import hub, storage
from bert_jax.runtime.storage import Path


class Record(NamedTuple):
    """One record; `label` is the class's index or STS-B's score, None in test sets."""

    id: int | str
    text: str
    text_b: str | None
    label: int | float | None


class GlueTask(NamedTuple):
    """One of the ten.

    Attributes:
      title: as in the names of folders and submission files.
      texts: the columns of the text or the pair.
      label: the column of the label.
      labels: its values, in the order of run_classifier.py; empty for a score.
      scores: the leaderboard's (CoLA: and accuracy).
      main_score: the one in the paper's table 1.
    """

    title: str
    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    scores: tuple[str, ...]
    main_score: str


_PAIR = ("sentence1", "sentence2")
_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_ACCURACY, _F1 = ("accuracy",), ("f1", "accuracy")
_CORRELATIONS = ("spearman", "pearson")
_QUESTIONS = ("question1", "question2")
_STRINGS = ("#1 String", "#2 String")
TASKS = {
    "cola": GlueTask(
        "CoLA", ("sentence",), "label", _BINARY, ("matthews", "accuracy"), "matthews"
    ),
    "sst2": GlueTask("SST-2", ("sentence",), "label", _BINARY, _ACCURACY, "accuracy"),
    "mrpc": GlueTask("MRPC", _STRINGS, "Quality", _BINARY, _F1, "f1"),
    "stsb": GlueTask("STS-B", _PAIR, "score", (), _CORRELATIONS, "spearman"),
    "qqp": GlueTask("QQP", _QUESTIONS, "is_duplicate", _BINARY, _F1, "f1"),
    "mnli": GlueTask("MNLI", _PAIR, "gold_label", _NLI, _ACCURACY, "accuracy"),
    "qnli": GlueTask(
        "QNLI", ("question", "sentence"), "label", _ENTAILMENT, _ACCURACY, "accuracy"
    ),
    "rte": GlueTask("RTE", _PAIR, "label", _ENTAILMENT, _ACCURACY, "accuracy"),
    "wnli": GlueTask("WNLI", _PAIR, "label", _BINARY, _ACCURACY, "accuracy"),
    "ax": GlueTask("AX", _PAIR, "", _NLI, _ACCURACY, "accuracy"),
}
# CoLA's train and dev files have no header.
_COLA_COLUMNS = ("source", "label", "mark", "sentence")
_DIAGNOSTIC = ("diagnostic.tsv", "../diagnostic/diagnostic.tsv")
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "mnli": {
        "dev": ("dev_matched.tsv",),
        "dev_mismatched": ("dev_mismatched.tsv",),
        "test": ("test_matched.tsv",),
        "test_mismatched": ("test_mismatched.tsv",),
        "ax": _DIAGNOSTIC,
    },
    "ax": {"test": _DIAGNOSTIC},
}
_TFDS_SPLITS = {
    "mnli": {
        "dev": "validation_matched",
        "dev_mismatched": "validation_mismatched",
        "test": "test_matched",
    }
}
# Texts that TFDS names differently.
_TFDS_TEXTS = {
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
    "mrpc": _PAIR,
}
# The annotators did not agree; SNLI and MultiNLI leave such pairs out.
_NO_GOLD = "-"


def read(
    name: str, source: str, split: str, labels: Sequence[str], notices: Counter[str]
) -> list[Record] | None:
    """Returns the records of a split, in the order of the file.

    Args:
      name: a key of TASKS.
      source: the folder of the task's files, or "tfds:" or "hf:" and a data set.
      split: train, dev or test; for MNLI also dev_mismatched, test_mismatched and ax.
      labels: the classes in the order of the model's outputs.
      notices: counts what is skipped.

    Returns:
      None where a test split has no file.

    Raises:
      UserError: train or dev has no file; a column is missing; a record is incomplete
        or its label is not one of the task's.
    """
    if name == "ax" and split in ("train", "dev"):
        raise UserError(
            f"config.task.name=ax has no {split} set: use --mode=evaluate and "
            "--config.init_from with an mnli run (which also writes AX.tsv itself)"
        )
    if source.startswith("tfds:"):
        fields = _from_tfds(name, source.removeprefix("tfds:"), split)
    elif source.startswith(hub.PREFIX):
        fields = _from_hub(name, source, split)
    else:
        fields = _from_files(name, storage.path(source), split, notices)
    if fields is None:
        notices[f"{split}: files missing in {source}, nothing predicted"] += 1
        return None
    labelled = _labelled(split)
    records = []
    for place, index, texts, label in fields:
        if labelled and label == _NO_GOLD and name == "mnli":
            notices[f"{split}: records without a gold label, left out"] += 1
            continue
        text, text_b = [*texts, None][:2]
        assert text is not None
        target = _label(name, label, labels, place) if labelled else None
        records.append(Record(index, text, text_b, target))
    if not records:
        raise UserError(f"{source}: the {split} split has no records")
    return records


# Of each record: its place for errors, index, texts and label.
_Fields = Iterator[tuple[str, int | str, Sequence[str], str]]


def _from_files(
    name: str, folder: Path, split: str, notices: Counter[str]
) -> _Fields | None:
    names = _FILES.get(name, {}).get(split, (f"{split}.tsv",))
    paths = [folder / f"{file}{end}" for file in names for end in ("", ".gz")]
    for path in paths:
        if path.is_file():
            return _from_file(name, path, split, notices)
    if split in ("train", "dev"):
        raise UserError(
            f"{paths[0]}: no such file, nor {paths[1].name}; set config.task.data_dir "
            f"to the folder of {TASKS[name].title}'s files"
        )
    return None


def _from_file(name: str, path: Path, split: str, notices: Counter[str]) -> _Fields:
    task, labelled = TASKS[name], _labelled(split)
    columns = (*task.texts, task.label) if labelled else task.texts
    lines = read_lines(path)
    header = next(lines)[1].split("\t")
    if name == "cola" and "sentence" not in header:
        header, lines = list(_COLA_COLUMNS), read_lines(path)
    where = {column: place for place, column in enumerate(header)}
    for column in columns:
        if column not in where:
            raise UserError(
                f"{path}:1: no column {column!r}; {task.title}'s {split} file has "
                f"{', '.join(columns)}, this one {', '.join(header)}"
            )
    key = next((k for k in ("index", "id") if k in where), None)
    count = 0
    for number, line in lines:
        row = line.split("\t")
        if row == [""]:
            notices[f"{split}: empty lines, left out"] += 1
            continue
        if name == "qqp" and labelled and len(row) < len(header):
            # Some records have a line break inside a text; TFDS drops them too.
            notices[f"{split}: lines without a whole record, left out"] += 1
            continue
        if len(row) != len(header):
            raise UserError(
                f"{path}:{number}: {len(row)} columns, {len(header)} are required "
                f"({', '.join(header)})"
            )
        values = [row[where[column]] for column in columns]
        index = count if key is None else row[where[key]]
        count += 1
        texts, label = values[: len(task.texts)], values[len(task.texts) :]
        yield f"{path}:{number}", index, texts, label[0] if label else ""


def _from_tfds(name: str, source: str, split: str) -> _Fields | None:
    builder = tfds_source.prepared(source)
    source_split = _their_split(name, split)
    if source_split not in builder.info.splits:
        if split in ("train", "dev"):
            raise UserError(
                f"tfds:{source}: no split {source_split}; it has "
                f"{', '.join(sorted(builder.info.splits))}"
            )
        return None
    columns = _TFDS_TEXTS.get(name, TASKS[name].texts)
    features = builder.info.features
    for column in (*columns, "label"):
        if column not in features:
            raise UserError(
                f"tfds:{source}: no feature {column!r}; it has "
                f"{', '.join(sorted(features))}: is it {TASKS[name].title}?"
            )
    return _tfds_records(name, source, builder, source_split)


def _tfds_records(name: str, source: str, builder: Any, split: str) -> _Fields:
    columns = _TFDS_TEXTS.get(name, TASKS[name].texts)
    names = getattr(builder.info.features["label"], "names", None)
    records = list(enumerate(tfds_source.examples(source, builder, split)))
    # TFDS shuffles; idx is the place in the official file, the order of submissions.
    records.sort(key=lambda pair: int(pair[1].get("idx", pair[0])))
    for count, record in records:
        texts = [record[column].decode("utf-8") for column in columns]
        label = record["label"]
        # TFDS names classes that GLUE calls 0 and 1.
        if names is not None and TASKS[name].labels != _BINARY:
            label = names[label]
        index = int(record.get("idx", count))
        yield f"tfds:{source}: {split}, record {count}", index, texts, str(label)


def _their_split(name: str, split: str) -> str:
    """The name of a split in TFDS, and on the Hub."""
    default = {"dev": "validation"}.get(split, split)
    return _TFDS_SPLITS.get(name, {}).get(split, default)


def _from_hub(name: str, source: str, split: str) -> _Fields | None:
    """The same from the Hub's nyu-mll/glue, whose columns are TFDS's."""
    if ":" not in source.removeprefix(hub.PREFIX):
        source = f"{source}:{name}"
    source_split = _their_split(name, split)
    find = hub_source.required if split in ("train", "dev") else hub_source.files
    paths = find(source, source_split)
    return _hub_records(name, source, source_split, paths) if paths else None


def _hub_records(
    name: str, source: str, split: str, paths: Sequence[LocalPath]
) -> _Fields:
    columns = _TFDS_TEXTS.get(name, TASKS[name].texts)
    # The Hub names classes that GLUE calls 0 and 1.
    named = bool(TASKS[name].labels) and TASKS[name].labels != _BINARY
    count = 0
    for path in paths:
        for row in hub_source.rows(path, named=named):
            place = f"{source}: {split}, record {count}"
            for column in (*columns, "label"):
                if column not in row:
                    raise UserError(
                        f"{place}: no column {column!r}; there are {', '.join(row)}: "
                        f"is it {TASKS[name].title}?"
                    )
            texts = [as_text(row[column], place, column) for column in columns]
            yield place, int(row.get("idx", count)), texts, str(row["label"])
            count += 1


def _labelled(split: str) -> bool:
    return split == "train" or split.startswith("dev")


def _label(name: str, label: str, labels: Sequence[str], place: str) -> int | float:
    if TASKS[name].labels:
        if label in labels:
            return labels.index(label)
        raise UserError(
            f"{place}: the label is {label!r}; {TASKS[name].title} has "
            f"{', '.join(sorted(labels))}"
        )
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 5:
        raise UserError(f"{place}: the score is {label!r}; 0 to 5 is required")
    return score
