"""The user's own texts or pairs, and IMDb: predicts a class, labels or a number."""

import functools
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data import folders, texts
from bert_jax.data.columns import ANY, BY_NAME, Wanted, is_number
from bert_jax.data.lines import uncompressed
from bert_jax.data.texts import LabelledText
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks import confusion
from bert_jax.tasks.classification import Classification, TextExample
from bert_jax.types import Arrays

log = logging.getLogger(__name__)

Target = int | float | tuple[int, ...] | None  # like TextExample.label
_NAMED = 10  # the most labels that an error lists
_SHOWN = 20  # the most classes whose tables are printed
_NO_FILMS = "dev: reviews held out from data that do not name their films"


class Text(Classification):
    """Texts of tables: CSV, TSV, JSON lines or TFDS (data/tables.py).

    Args:
      config: reads from `config.task`: `train_file`, `dev_file` and `test_file` (empty:
        none), their `format`, the columns `text`, `text_b` and `label`, and
        `label_separator`. If `labels` is empty, uses those of the training data:
        integers in numeric order, names in alphabetical order; or, in their order,
        `label_names`.
    """

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        self._texts: dict[str, list[LabelledText]] = {}
        self._balanced = config.task.get("class_weights", "none") == "balanced"
        if self._balanced and self.kind != "classification":
            raise UserError(
                f"config.task.class_weights=balanced: config.task.kind={self.kind} has "
                "no classes; leave it none"
            )
        if config.task.get("label_names") and self.kind == "regression":
            raise UserError(
                "config.task.label_names: config.task.kind=regression has no classes; "
                "leave it empty"
            )

    def load(self, split: str) -> list[LabelledText] | None:
        """Reads a split's file; only `test` may be unlabelled.

        With `task.dev_fraction`, `train` and `dev` are parts of the training file.
        """
        task = self.config.task
        fraction = task.get("dev_fraction", 0.0)
        if not fraction or split not in ("train", "dev"):
            return self._file(split)
        if task.dev_file:
            raise UserError(
                f"config.task.dev_fraction={fraction}: dev_file={task.dev_file} is "
                "named too; set one of them"
            )
        whole = self._file("train") or []
        groups = [f"{text.text}\0{text.text_b}" for text in whole]
        by_class = self.kind == "classification"
        kept, held = texts.hold_out(whole, fraction, groups, by_class=by_class)
        if not held:
            raise UserError(
                f"config.task.dev_fraction={fraction}: holds out none of the "
                f"{len(whole)} records of {task.train_file}; name a larger share"
            )
        return held if split == "dev" else kept

    def _file(self, split: str) -> list[LabelledText] | None:
        task = self.config.task
        source = task.get(f"{split}_file", "")
        if not source:
            return None
        labelled = split != "test"
        read = texts.read_texts(source, self._columns, self.kind, labelled=labelled)
        return self._named(read)

    @property
    def _columns(self) -> texts.Columns:
        task = self.config.task
        names = (task.text, task.text_b, task.label)
        return texts.Columns(*names, task.label_separator, task.get("format", ""))

    @property
    def row_columns(self) -> Wanted:
        """The data's own columns if they are numbers; names may also be `text` and
        `text_b`."""
        if "text" not in self.config.task:
            return ANY
        texts, labels, form, _ = self._columns.wanted(labelled=False)
        # A format for training files of no known ending is only that of such files.
        ending = uncompressed(self.config.task.train_file).rpartition(".")[2]
        overrides = ending in ("", "csv", "tsv", "jsonl", "parquet")
        wanted = Wanted(texts, tuple(filter(is_number, labels)), form, overrides)
        return wanted if wanted.numbers else wanted._replace(required=(), optional=())

    def place_of_text(self, row: Mapping[str, Any]) -> str:
        """Names one column, or both of a pair: by number in a table without a
        header."""
        names = ["text"] if self.parse(dict(row)).text_b is None else ["text", "text_b"]
        columns = [self.config.task.get(name) for name in names]
        some = "columns" if len(names) > 1 else "column"
        if self.row_columns.numbers and set(columns) <= row.keys():
            numbers = " and ".join(columns)
            return f"{some} {numbers}, counted from 0, of {len(row)} (no header)"
        pairs = zip(columns, names, strict=True)
        used = [repr(column if column in row else name) for column, name in pairs]
        return f"{some} {' and '.join(used)}"

    def find_labels(self) -> Sequence[str]:
        """The labels of the training data, or one output for a number.

        Raises:
          UserError: there are fewer than two classes, or no label.
        """
        if self.kind == "regression":
            return super().find_labels()
        records = self._texts["train"] = self.load("train") or []
        names = Counter(name for text in records for name in _names(text))
        for name in _names(records[0]) if records and self.row_columns.numbers else ():
            if names[name] == 1:
                what = f"{records[0].where}: the only record with the label {name!r}"
                self.notices[f"{what}; if it is a header, name the columns"] += 1
        if self.config.task.get("label_names"):
            return self._name_labels(texts.sorted_labels(set(names)))
        if self.kind == "classification" and texts.seem_scores(names):
            log.warning(
                "warning: %s: the labels are numbers with fractions, such as %s, here "
                "%d classes; if they are scores, set --config.task.kind=regression",
                *(self.config.task.train_file, max(names, key=len), len(names)),
            )
        least = 2 if self.kind == "classification" else 1
        if len(names) < least:
            listed = ", ".join(map(repr, names)) or "none"
            raise UserError(
                f"config.task: labels in the training data: {listed}; at least {least} "
                "are required: name the file and the column that have them"
            )
        return texts.sorted_labels(set(names))

    def read(self, split: str) -> list[TextExample] | None:
        """The texts of a split; its labels must be labels of the training data."""
        names = self.labels or tuple(self.find_labels())
        records = self._texts.pop(split, None) or self.load(split)
        if records is None:
            return None
        known = {texts.label_name(name): index for index, name in enumerate(names)}
        missing = sum(text.label is None for text in records)
        if 0 < missing < len(records):
            what = f"{split}: records without a label, so that none is scored"
            self.notices[what] += missing
        return [
            TextExample(index, text.text, text.text_b, self._target_of(text, known))
            for index, text in enumerate(records)
        ]

    def weights(self, batch: Arrays) -> Float[Array, "batch"]:
        """1 for each row; with `task.class_weights=balanced` its class's weight."""
        weights = super().weights(batch)
        if not self._balanced:
            return weights
        return weights * jnp.asarray(self._class_weights)[batch["label"]]

    @functools.cached_property
    def _class_weights(self) -> Float[np.ndarray, "labels"]:
        """As scikit-learn's class_weight="balanced": records / (classes x records of
        the class), of the training data; 1 for a class without records."""
        labels = [example.label for example in self.examples("train")]
        counts = np.bincount(np.array(labels, int), minlength=len(self.labels))
        rare = np.maximum(counts, 1) * np.count_nonzero(counts)
        weights = np.where(counts, len(labels) / rare, 1.0)
        return weights.astype(np.float32)

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[TextExample],
        answers: Sequence[np.ndarray],
    ) -> None:
        """`SPLIT.jsonl`: for each record `index` (from 0), `text`, `text_b` of a pair,
        `label` (a name, a list of names or a number), `scores` (probabilities by name;
        not for a number), and `gold` if known. `SPLIT_classes.txt`: the tables of
        `class_tables`."""
        if tables := self.class_tables(examples, answers):
            write_atomically(folder / f"{split}_classes.txt", tables + "\n")
        lines = []
        for example, answer in zip(examples, answers, strict=True):
            result = self.result(example, answer)
            row: dict[str, Any] = {"index": example.id, "text": example.text}
            if example.text_b is not None:
                row["text_b"] = example.text_b
            row["label"] = self._shown(self.guess(answer))
            if "scores" in result:
                row["scores"] = result["scores"]
            if example.label is not None:
                row["gold"] = self._shown(example.label)
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        write_atomically(folder / f"{split}.jsonl", "".join(lines))

    @property
    def shown_names(self) -> Mapping[str, str]:  # type: ignore[override]
        """Says which class or classes the F1 is of."""
        last = texts.sorted_labels(set(self.labels))[-1]
        return {"f1": f"f1 of {last}" if self.kind == "classification" else "f1, micro"}

    def details(
        self, examples: Sequence[TextExample], answers: Sequence[np.ndarray]
    ) -> str:
        """The tables of `class_tables`, unless they are too large for a screen."""
        few = len(self.labels) <= _SHOWN
        return self.class_tables(examples, answers) if few else ""

    def class_tables(
        self, examples: Sequence[TextExample], answers: Sequence[np.ndarray]
    ) -> str:
        """Formats each class's scores and the confusion matrix; empty without classes
        or labels."""
        if self.kind != "classification" or None in (x.label for x in examples):
            return ""
        labels = np.array([example.label for example in examples], int)
        guesses = np.array([self.guess(answer) for answer in answers], int)
        found = confusion.counts(labels, guesses, len(self.labels))
        return confusion.text(self.labels, found)

    def parse(self, row: dict[str, Any]) -> TextExample:
        """The data's own columns, or else `text`, and `text_b` for a pair.

        A column that only happens to be named so says nothing to a run that has read
        others.
        """
        task = self.config.task
        named = {"text": task.get("text"), "text_b": task.get("text_b")}
        columns = {name: row[column] for name, column in named.items() if column in row}
        if "text" in columns and task.get("text") != "text" and not task.get("text_b"):
            row = {name: value for name, value in row.items() if name != "text_b"}
        return super().parse(row | columns)

    def _name_labels(self, found: Sequence[str]) -> Sequence[str]:
        """Returns `label_names` without the labels before "="; where there are none,
        first puts them there, in the order of the training data's.

        Raises:
          UserError: there are fewer names than labels, or more.
        """
        task = self.config.task
        if not all("=" in name for name in task.label_names):
            if len(found) != len(task.label_names):
                raise UserError(
                    f"config.task.label_names: {len(task.label_names)} names, but the "
                    f"training data has {len(found)} labels: {', '.join(found):.200}; "
                    "name each of them, or write LABEL=NAME"
                )
            pairs = zip(found, task.label_names, strict=True)
            task.label_names = tuple(f"{label}={name}" for label, name in pairs)
            self._texts["train"] = self._named(self._texts["train"])
        return [name.partition("=")[2] for name in task.label_names]

    def _named(self, records: list[LabelledText]) -> list[LabelledText]:
        """Gives labels their names of `label_names`. Without the labels before "=" they
        are 0, 1, ..., if it is known that these are the model's."""
        pairs = self.config.task.get("label_names", ())
        if self.labels and not all("=" in pair for pair in pairs):
            pairs = [f"{index}={name}" for index, name in enumerate(pairs)]
        split = [pair.partition("=") for pair in pairs if "=" in pair]
        names = {texts.label_name(label): name for label, _, name in split}
        if not names:
            return records

        def named(label: texts.Label) -> texts.Label:
            if isinstance(label, tuple):
                return tuple(names.get(each, each) for each in label)
            return names.get(label, label) if isinstance(label, str) else label

        return [text._replace(label=named(text.label)) for text in records]

    def _target_of(self, text: LabelledText, known: Mapping[str, int]) -> Target:
        if text.label is None or isinstance(text.label, float):
            return text.label
        for name in _names(text):
            if name not in known:
                listed = ", ".join(map(repr, list(known)[:_NAMED]))
                rest = ", ..." if len(known) > _NAMED else ""
                raise UserError(
                    f"{text.where}: label {name!r:.60} is not in the training data "
                    f"({listed}{rest}); correct it, or train with it"
                )
        if isinstance(text.label, str):
            return known[text.label]
        held = set(text.label)
        return tuple(int(name in held) for name in known)

    def _shown(self, label: Target) -> Any:
        """A label as the prediction file shows it: by name."""
        if isinstance(label, tuple):
            return [n for n, held in zip(self.labels, label, strict=True) if held]
        return self.labels[label] if isinstance(label, int) else label


class Imdb(Text):
    """IMDb's reviews (Maas et al. 2011), or texts laid out like them.

    Args:
      config: reads from `config.task`: `data_dir` (a folder with train/CLASS/*.txt and
        optionally test/CLASS/*.txt; or "tfds:imdb_reviews", or
        "hf:stanfordnlp/imdb") and `dev_fraction`.

    IMDb has no dev set, so `dev` holds out `dev_fraction` of each class of the training
    data: whole films if the archive's urls_CLASS.txt name them, else the last texts of
    each class by file name. TFDS and the Hub have only a review's text and label: there
    `train` and `dev` never share a text, but may share a film, so dev scores may be too
    high.
    """

    def load(self, split: str) -> list[LabelledText] | None:
        """Splits the training data into `train` and `dev`; reads `test` as it is."""
        task = self.config.task
        if not task.data_dir:
            raise UserError(
                "config.task.data_dir is empty: name IMDb's folder, with train/ and "
                "test/, hf:stanfordnlp/imdb or tfds:imdb_reviews"
            )
        if split in ("train", "dev"):
            whole = self._whole("train")
            parts = texts.hold_out(whole, task.dev_fraction, self._groups(whole))
            if task.data_dir.startswith(BY_NAME) and parts[1]:
                self.notices[_NO_FILMS] = len(parts[1])
            return parts[split == "dev"] or None
        folder = storage.path(task.data_dir) / split
        if task.data_dir.startswith(BY_NAME) or folder.exists():
            return self._whole(split)
        return None

    def _groups(self, whole: list[LabelledText]) -> list[str] | None:
        """Each text's group; a group must not be split between train and dev."""
        source = self.config.task.data_dir
        if not source.startswith(BY_NAME):
            return folders.films(storage.path(source) / "train", whole)
        return [text.text for text in whole]

    def _whole(self, split: str) -> list[LabelledText]:
        source = self.config.task.data_dir
        if source.startswith(BY_NAME):
            columns = texts.Columns("text", "", "label", ",")
            return texts.read_texts(
                f"{source}:{split}", columns, self.kind, labelled=True
            )
        return folders.read_folders(storage.path(source) / split)


def _names(text: LabelledText) -> tuple[str, ...]:
    label = text.label
    return label if isinstance(label, tuple) else (str(label),)
