"""The ten tasks of GLUE: their definitions, and their rows from TSV files, TFDS or the
Hugging Face Hub.

The files are gluebenchmark.com's: one record per line, fields separated by tabs. Quotes
are text, as in Google's run_classifier.py and TFDS, even in QQP, where CSV's quotes
surround some fields. The first line names the columns.
"""

from collections import Counter
from typing import Any, NamedTuple

from bert_jax.data import tables
from bert_jax.data.lines import read_lines
from bert_jax.data.tables import BY_NAME, ColumnSpec, Row, require_string
from bert_jax.data.texts import number_label
from bert_jax.errors import UserError
from bert_jax.runtime import storage


class GlueTask(NamedTuple):
    """One of the ten tasks.

    Attributes:
      title: Title in the names of folders and submission files.
      texts: Columns of the text or the pair.
      label: Column of the label, in data sets `label`.
      labels: Its values, in the order of run_classifier.py. Empty for a score.
      scores: The leaderboard's scores (for CoLA, also accuracy).
      main_score: The score in the paper's table 1.
      set_labels: Names of `labels` in data sets, where they differ.
      set_texts: Names of `texts` in data sets, where they differ.
    """

    title: str
    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    scores: tuple[str, ...] = ("accuracy",)
    main_score: str = "accuracy"
    set_labels: tuple[str, ...] = ()
    set_texts: tuple[str, ...] = ()


_PAIR = ("sentence1", "sentence2")
_PREMISE = ("premise", "hypothesis")
_QUESTIONS = ("question1", "question2")
_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
TASKS = {
    "cola": GlueTask("CoLA", ("sentence",), "label", _BINARY,
                     ("matthews", "accuracy"), "matthews",
                     ("unacceptable", "acceptable")),
    "sst2": GlueTask("SST-2", ("sentence",), "label", _BINARY,
                     set_labels=("negative", "positive")),
    "mrpc": GlueTask("MRPC", ("#1 String", "#2 String"), "Quality", _BINARY,
                     ("f1", "accuracy"), "f1",
                     ("not_equivalent", "equivalent"), _PAIR),
    "stsb": GlueTask("STS-B", _PAIR, "score", (), ("spearman", "pearson"), "spearman"),
    "qqp": GlueTask("QQP", _QUESTIONS, "is_duplicate", _BINARY,
                    ("f1", "accuracy"), "f1", ("not_duplicate", "duplicate")),
    "mnli": GlueTask("MNLI", _PAIR, "gold_label", _NLI, set_texts=_PREMISE),
    "qnli": GlueTask("QNLI", ("question", "sentence"), "label", _ENTAILMENT),
    "rte": GlueTask("RTE", _PAIR, "label", _ENTAILMENT),
    "wnli": GlueTask("WNLI", _PAIR, "label", _BINARY,
                     set_labels=("not_entailment", "entailment")),
    "ax": GlueTask("AX", _PAIR, "", _NLI, set_texts=_PREMISE),
}  # fmt: skip
_DIAGNOSTIC = ("diagnostic.tsv", "../diagnostic/diagnostic.tsv")
# The files of splits, and their names in data sets, where they differ.
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "mnli": {
        "dev": ("dev_matched.tsv",),
        "test": ("test_matched.tsv",),
        "ax": _DIAGNOSTIC,
    },
    "ax": {"test": _DIAGNOSTIC},
}
_SPLITS = {
    "mnli": {
        "dev": "validation_matched",
        "dev_mismatched": "validation_mismatched",
        "test": "test_matched",
    }
}
_NEEDED = ("train", "dev")  # the others are predicted where they exist
_IDS = ("index", "id", "idx")  # columns of a record's number
# The annotators did not agree. SNLI and MultiNLI leave such pairs out.
_NO_GOLD = ("-", None)


def read_split(
    name: str, source: str, split: str, notices: Counter[str]
) -> list[Row] | None:
    """Returns the rows of a split, in the order of the file.

    Args:
      name: Key of TASKS.
      source: Folder of the task's files, or "tfds:" or "hf:" and a data set.
      split: train, dev or test, for MNLI also dev_mismatched, test_mismatched and ax.
      notices: Counts of skipped records.

    Returns:
      Rows of `id`, `text`, `text_b` and `label`: one of the task's labels or a score,
      None in test sets. None where a test split has no file.

    Raises:
      UserError: train or dev has no file, a column is missing, a record is incomplete,
        or a score is not from 0 to 5.
    """
    task, labelled = TASKS[name], split == "train" or split.startswith("dev")
    if name == "ax" and labelled:
        raise UserError(
            f"config.task.name=ax has no {split} set: use --mode=evaluate and "
            "--config.init_from with an mnli run (which also writes AX.tsv itself)"
        )
    is_set = source.startswith(BY_NAME)
    place = (_split_of_set if is_set else _file)(name, source, split)
    if place is None:
        notices[f"{split}: files missing in {source}, nothing predicted"] += 1
        return None
    texts, label = task.texts, task.label
    if is_set:
        texts, label = task.set_texts or texts, "label"
    elif name == "cola" and "sentence" not in next(read_lines(place))[1].split("\t"):
        texts, label = ("3",), "1"  # its train and dev files have no header
    # Some of QQP's records have a line break inside a text. TFDS drops them too.
    incomplete = name == "qqp" and labelled
    columns = (*texts, label) if labelled else texts
    wanted = ColumnSpec(columns, format="tsv", incomplete=incomplete)
    rows: list[Row] = []
    for count, (where, fields) in enumerate(tables.read_rows(place, wanted)):
        value = fields[label] if labelled else None
        if labelled and name == "mnli" and value in _NO_GOLD:
            notices[f"{split}: records without a gold label, left out"] += 1
            continue
        row: Row = {"id": next((fields[x] for x in _IDS if x in fields), count)}
        row |= {"where": where, "label": _label(task, value, where)}
        each = [require_string(fields[column], where, column) for column in texts]
        rows.append(row | dict(zip(("text", "text_b"), each, strict=False)))
    # TFDS shuffles. idx is the index in the official file, the order of submissions.
    return sorted(rows, key=lambda row: int(row["id"])) if is_set else rows


def _label(task: GlueTask, value: Any, where: str) -> str | float | None:
    if value is None:
        return None
    if task.labels:
        called = dict(zip(task.set_labels, task.labels, strict=False))
        return called.get(value, str(value))
    score = number_label(value, where)
    if not 0 <= score <= 5:
        raise UserError(f"{where}: the score is {score}, not 0-5")
    return score


def _file(name: str, source: str, split: str) -> str | None:
    """Returns the path of a split's file, or None if a test split has none."""
    names = _FILES.get(name, {}).get(split, (f"{split}.tsv",))
    folder = storage.storage_path(source)
    paths = [folder / f"{file}{end}" for file in names for end in ("", ".gz")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None and split in _NEEDED:
        raise UserError(
            f"{paths[0]}: no such file, nor {paths[1].name}; set config.task.data_dir "
            f"to the folder of {TASKS[name].title}'s files"
        )
    return None if path is None else str(path)


def _split_of_set(name: str, source: str, split: str) -> str | None:
    """Returns a split of TFDS's glue/NAME, or of the same on the Hub: nyu-mll/glue."""
    if source.startswith("hf:") and ":" not in source.removeprefix("hf:"):
        source = f"{source}:{name}"
    theirs = "validation" if split == "dev" else split
    place = f"{source}:{_SPLITS.get(name, {}).get(split, theirs)}"
    return place if split in _NEEDED or tables.has_split(place) else None
