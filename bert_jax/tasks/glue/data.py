"""The ten tasks of GLUE: their definitions, and their rows from TSV files, TFDS or the
Hugging Face Hub.

The files are gluebenchmark.com's: one record per line, fields separated by tabs. Quotes
are text, as in Google's run_classifier.py and TFDS, even in QQP, where CSV's quotes
surround some fields. The first line names the columns.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax.data import tables
from bert_jax.data.lines import read_lines
from bert_jax.data.tables import BY_NAME, Row, Wanted, as_text
from bert_jax.data.texts import number
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
# The annotators did not agree. SNLI and MultiNLI leave such pairs out.
_NO_GOLD = ("-", None)


def read(name: str, source: str, split: str, notices: Counter[str]) -> list[Row] | None:
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
    read_split = _of_data_set if source.startswith(BY_NAME) else _of_files
    records = read_split(name, source, split, labelled, notices)
    if records is None:
        notices[f"{split}: files missing in {source}, nothing predicted"] += 1
        return None
    rows: list[Row] = []
    for row in records:
        if labelled and row["label"] in _NO_GOLD and name == "mnli":
            notices[f"{split}: records without a gold label, left out"] += 1
            continue
        if not task.labels and labelled:
            row["label"] = number(row["label"], row["where"])
            if not 0 <= row["label"] <= 5:
                raise UserError(f"{row['where']}: the score is {row['label']}, not 0-5")
        rows.append(row)
    if not rows:
        raise UserError(f"{source}: the {split} split has no records")
    return rows


def _of_files(
    name: str, source: str, split: str, labelled: bool, notices: Counter[str]
) -> Iterator[Row] | None:
    names = _FILES.get(name, {}).get(split, (f"{split}.tsv",))
    folder = storage.path(source)
    paths = [folder / f"{file}{end}" for file in names for end in ("", ".gz")]
    path = next((path for path in paths if path.is_file()), None)
    if path is not None:
        return _of_file(name, str(path), split, labelled, notices)
    if split in _NEEDED:
        raise UserError(
            f"{paths[0]}: no such file, nor {paths[1].name}; set config.task.data_dir "
            f"to the folder of {TASKS[name].title}'s files"
        )
    return None


def _of_file(
    name: str, path: str, split: str, labelled: bool, notices: Counter[str]
) -> Iterator[Row]:
    texts, label = TASKS[name].texts, TASKS[name].label
    if name == "cola" and "sentence" not in next(read_lines(path))[1].split("\t"):
        texts, label = ("3",), "1"  # its train and dev files have no header
    # Some of QQP's records have a line break inside a text. TFDS drops them too.
    incomplete = Counter[str]() if name == "qqp" and labelled else None
    columns = (*texts, label) if labelled else texts
    wanted = Wanted(columns, format="tsv", incomplete=incomplete)
    for count, (where, fields) in enumerate(tables.read_rows(path, wanted)):
        number = next((fields[key] for key in ("index", "id") if key in fields), count)
        row = {"id": number, **_texts(where, fields, texts)}
        yield row | {"label": fields[label] if labelled else None}
    if incomplete:
        what = f"{split}: lines without a whole record, left out"
        notices[what] += incomplete.total()


def _of_data_set(
    name: str, source: str, split: str, labelled: bool, notices: Counter[str]
) -> Iterator[Row] | None:
    """Yields rows of TFDS's glue/NAME, or the same on the Hub: nyu-mll/glue."""
    del notices
    task = TASKS[name]
    if source.startswith("hf:") and ":" not in source.removeprefix("hf:"):
        source = f"{source}:{name}"
    theirs = "validation" if split == "dev" else split
    place = f"{source}:{_SPLITS.get(name, {}).get(split, theirs)}"
    if split not in _NEEDED and not tables.has_split(place):
        return None
    texts = task.set_texts or task.texts
    called = dict(zip(task.set_labels, task.labels, strict=False))
    rows = []
    for count, (where, fields) in enumerate(
        tables.read_rows(place, Wanted((*texts, "label")))
    ):
        label = fields["label"]
        label = called.get(label, None if label is None else str(label))
        row = {"id": int(fields.get("idx", count)), **_texts(where, fields, texts)}
        rows.append(row | {"label": label if labelled else None})
    # TFDS shuffles. idx is the index in the official file, the order of submissions.
    return iter(sorted(rows, key=lambda row: row["id"]))


def _texts(where: str, fields: Row, columns: tuple[str, ...]) -> Row:
    values = [as_text(fields[column], where, column) for column in columns]
    return {"where": where, **dict(zip(("text", "text_b"), values, strict=False))}
