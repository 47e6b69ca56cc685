"""Texts and pairs: prediction of a class, several labels at once, or a number.

The rows are those of `data/texts.py`: the user's tables. IMDb (imdb.py) and GLUE
(glue/) add the sources of their rows.
"""

import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.config import fields
from bert_jax.convert import layout
from bert_jax.data import texts, truncation
from bert_jax.data.rows import Feature
from bert_jax.data.tables import ColumnSpec, Row
from bert_jax.errors import UserError
from bert_jax.runtime import terminal
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.scores import calibration
from bert_jax.scores import classification as scores
from bert_jax.tasks import distillation, windows
from bert_jax.tasks.cross_entropy import of_classes
from bert_jax.tasks.finetuning import Answers, Finetuning
from bert_jax.types import Arrays

log = logging.getLogger(__name__)

# Scores of each kind, the main one first.
SCORES: dict[str, dict[str, Callable[..., float]]] = {
    "classification": {
        "accuracy": scores.accuracy,
        "f1": scores.binary_f1,  # for two classes, the F1 of the second in sorted order
        "matthews": scores.matthews,
        "macro_f1": scores.macro_f1,
    },
    "multilabel": {
        "f1": scores.binary_f1,
        "accuracy": scores.exact_match,
        "macro_f1": scores.macro_f1,
    },
    "regression": {"spearman": scores.spearman, "pearson": scores.pearson},
}
# Fields that are not for every kind, with a value of theirs, or None for all but the
# default, and the kinds.
_LIMITED = (
    ("class_weights", "balanced", ("classification",)),
    ("label_smoothing", None, ("classification",)),
    ("teacher_temperature", None, ("classification", "multilabel")),
    ("label_names", None, ("classification", "multilabel")),
    ("calibration", "temperature", ("classification", "multilabel")),
    ("calibration", "thresholds", ("multilabel",)),
)
_SHOWN = 20  # maximum number of classes whose tables are printed


class Text(Finetuning):
    """Texts of tables (data/tables.py). A subclass may read others: see `load`.

    Args:
      config: The whole config. From `config.task` the task reads `train_file`,
        `dev_file` and `test_file` (empty means none), their `format`, the columns
        `text`, `text_b` and `label`, `label_separator`, `kind` (classification,
        multilabel or regression) and `truncation` (of single texts: head, tail,
        head_tail). If `labels` is empty, the labels are those of the training data,
        integers in numeric order, names in alphabetical order, or `label_names` in
        their order.

    In its rows `label` is the index of the class, a tuple with 0 or 1 for each label
    (multilabel), a number (regression), or None if it is unknown. An answer is the
    row's logits, [labels].
    """

    head = "sequence_classification"

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        self.main_score = next(iter(SCORES[self.kind]))
        self.loss_name = f"{self.kind}_loss"
        self._loaded: dict[str, Sequence[Row]] = {}
        self._calibration = self.options.calibration
        for name, limited, kinds in _LIMITED:
            default = fields.TASK[f"task.{name}"].default
            value = self.options[name]
            is_set = value != default if limited is None else value == limited
            if is_set and self.kind not in kinds:
                raise UserError(
                    f"config.task.{name}={value}: is for config.task.kind="
                    f"{' or '.join(kinds)}, not for {self.kind}"
                )
        self._windows = self.options.windows

    @property
    def kind(self) -> str:
        """classification, multilabel or regression."""
        return str(self.options.kind)

    @property
    def pairs(self) -> bool:
        """Whether every row is a pair. False means that a row may be one."""
        return bool(self.options.text_b)

    def load(self, split: str) -> Sequence[Row] | None:
        """Reads a split's rows, with labels by name. Only `test` may be unlabeled.

        With `task.dev_fraction`, `train` and `dev` are parts of the training file.
        """
        options = self.options
        fraction = options.dev_fraction
        if not fraction or split not in ("train", "dev"):
            return super().read_rows(split)
        if options.dev_file:
            raise UserError(
                f"config.task.dev_fraction={fraction}: dev_file={options.dev_file} is "
                "named too; set one of them"
            )
        whole = super().read_rows("train") or []
        groups = [*map(texts.group_name, whole)]
        by_class = self.kind == "classification"
        kept, held = texts.hold_out(whole, fraction, groups, by_class=by_class)
        if not held:
            raise UserError(
                f"config.task.dev_fraction={fraction}: holds out none of the "
                f"{len(whole)} records of {options.train_file}; name a larger share"
            )
        return held if split == "dev" else kept

    def read_file(self, source: str, split: str) -> list[Row]:
        options = self.options
        return texts.read_texts(
            source,
            self.kind,
            labelled=split != "test",
            text=options.text,
            text_b=options.text_b,
            label=options.label,
            separator=options.label_separator,
            form=options.format,
            group=options.group if split == "train" else "",
        )

    @property
    def row_columns(self) -> ColumnSpec:
        """The data's columns if they are numbers. Names may also be `text` and
        `text_b`."""
        options = self.options
        columns = texts.text_columns(options.text, options.text_b, labelled=False)
        labels = tuple(filter(str.isdecimal, [options.label]))
        wanted = ColumnSpec(columns.required, labels, options.format)
        return wanted if wanted.numbers else wanted._replace(required=(), optional=())

    def parse_row(self, row: Row) -> Row:
        """Takes the data's columns, or else `text`, and `text_b` for a pair.

        A column that only happens to have such a name is ignored by a run that has read
        others.
        """
        options = self.options
        names = [name for name in ("text", "text_b") if options[name]]
        own = {name: row[options[name]] for name in names if options[name] in row}
        if (
            own.get("text") is not None
            and options.text != "text"
            and not options.text_b
        ):
            row = {"text": own["text"]}
        text, text_b = (own.get(name, row.get(name)) for name in ("text", "text_b"))
        if not isinstance(text, str):
            raise ValueError('"text" is required, a string')
        if text_b is not None and not isinstance(text_b, str):
            raise ValueError('"text_b" is not a string')
        if text_b is not None and self._windows > 1:
            raise ValueError('"text_b": only single texts have windows (task.windows)')
        if text_b is None and self.pairs:
            raise ValueError('"text_b" is required, a string: the task is of pairs')
        return {"text": text, "text_b": text_b}

    def read_rows(self, split: str) -> list[Row] | None:
        """Returns the rows of a split, whose labels must occur in the training data."""
        known = self._known_labels()
        rows = self._loaded.pop(split, None) or self.load(split)
        if rows is None:
            return None
        return [
            {"id": index, **row, "label": self._target(row, known)}
            for index, row in enumerate(rows)
        ]

    def _known_labels(self) -> dict[str, int]:
        """Returns the index of each label, by its name and by its name in the data.

        Without labels before the "=" of `label_names` the latter is 0, 1, ...
        """
        names = self.labels or tuple(self.find_labels())
        known = {texts.label_name(name): index for index, name in enumerate(names)}
        for index, pair in enumerate(self.options.label_names):
            old, _, new = pair.partition("=") if "=" in pair else (str(index), "", pair)
            if new in names:
                known[texts.label_name(old)] = names.index(new)
        numbers = tuple(map(str, range(len(names))))
        unnamed = layout.default_labels(len(names))
        for own, others in ((unnamed, numbers), (numbers, unnamed)):
            if tuple(names) == own:
                known |= {x: i for i, x in enumerate(others) if x not in known}
        return known

    def _target(self, row: Row, known: Mapping[str, int]) -> Any:
        """Returns the label by number."""
        label = row.get("label")
        if label is None or isinstance(label, float):
            return label
        for name in texts.label_names(label):
            if name not in known:
                raise UserError(
                    f"{row.get('where', 'a record')}: label {name!r:.60} is not in the "
                    f"training data ({', '.join(map(repr, known)):.200}); correct it, "
                    "train with it, or name what it is: --config.task.label_names="
                    f"\"('{name:.60}={next(iter(known))}', ...)\""
                )
        if isinstance(label, str):
            return known[label]
        held = {known[name] for name in label}
        return tuple(int(index in held) for index in range(1 + max(known.values())))

    def find_labels(self) -> Sequence[str]:
        """Returns the labels of the training data, or one output for a number.

        Raises:
          UserError: there are fewer than two classes, or no label.
        """
        if self.kind == "regression":
            return ("score",)
        rows = self._loaded["train"] = self.load("train") or []
        counts = Counter(x for r in rows for x in texts.label_names(r["label"]))
        width = max((row.get("width", 0) for row in rows), default=0)
        names = texts.sorted_labels({*counts, *map(str, range(width))})
        if width and not self.options.label_names:
            what = "train: lists of 0 and 1, read by index (task.label_names names it)"
            self.notices[what] = len(rows)
        for line in texts.label_warnings(counts):
            log.warning("warning: %s: %s", self.options.train_file, line)
        if self.options.label_names:
            return self._name_labels(names)
        if self.kind == "classification" and texts.seem_scores(names):
            log.warning(
                "warning: %s: the labels are numbers with fractions, such as %s, here "
                "%d classes; if they are scores, set --config.task.kind=regression",
                *(self.options.train_file, max(names, key=len), len(names)),
            )
        least = 2 if self.kind == "classification" else 1
        if len(names) < least:
            listed = ", ".join(map(repr, names)) or "none"
            raise UserError(
                f"config.task: labels in the training data: {listed}; at least {least} "
                "are required: name the file and the column that have them"
            )
        return names

    def _name_labels(self, found: Sequence[str]) -> Sequence[str]:
        """Returns `label_names` without the labels before "=".

        If there are none, first adds them, in the order of the training data's.

        Raises:
          UserError: there are fewer names than labels, or more.
        """
        options = self.options
        if not all("=" in name for name in options.label_names):
            if len(found) != len(options.label_names):
                raise UserError(
                    f"config.task.label_names: {len(options.label_names)} names, but "
                    f"the training data has {len(found)} labels: "
                    f"{', '.join(found):.200}; "
                    "name each of them, or write LABEL=NAME"
                )
            pairs = zip(found, options.label_names, strict=True)
            named = tuple(f"{label}={name}" for label, name in pairs)
            self.fill_in({"task.label_names": named})
        return [name.partition("=")[2] for name in self.options.label_names]

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Encodes each row as one sequence. A second text without any token counts as
        no second text, as in run_classifier.py."""
        labels = [example.get("label") for example in examples]
        several, labelled = self.kind == "multilabel", None not in labels
        features = []
        first = self.tokenize_texts([row["text"] for row in examples], offsets=False)
        others = [row.get("text_b") or "" for row in examples]
        second = self.tokenize_texts(others, offsets=False)
        for index, (a, b) in enumerate(zip(first, second, strict=True)):
            if self._windows == 1:
                columns: dict[str, Any] = {**self.sequence(a.ids, b.ids or None, split)}
            else:
                columns = {**self._window_rows(a.ids, split)}
            if labelled:
                label: Any = labels[index]
                columns["label"] = np.array(label, np.float32) if several else label
            features.append(Feature(index, columns))
        return features

    def _window_rows(self, ids: list[int], split: str) -> dict[str, np.ndarray]:
        """Returns the columns of a text's windows, [windows, length]."""
        room, overlap = self.max_seq_length - 2, self.options.window_overlap
        most = room + (self._windows - 1) * (room - overlap)
        if len(ids) > most:
            self.notices[f"{split}: texts longer than their windows, cut"] += 1
            ids = truncation.truncate_tokens(ids, most, self.options.truncation)
        parts = windows.cut_windows(ids, room, overlap)
        rows = [self.sequence(part, None, split) for part in parts]
        return self.grouped(rows, self._windows)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of the longest row's `input_ids`, with windows if it has some."""
        shape = super().row_shape
        return shape if self._windows == 1 else (self._windows, *shape)

    def logits_of(self, outputs: dict[str, Any], batch: Arrays) -> dict[str, Array]:
        found = super().logits_of(outputs, batch)
        if self._windows == 1:
            return found
        mask, how = batch["input_mask"], self.options.window_logits
        each = found["logits"].reshape(*mask.shape[:2], -1)
        return {"logits": windows.combine_logits(each, mask, how)}

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        """Returns the cross entropy in nats, as Hugging Face does.

        For multilabel it is the mean over labels, for regression the squared error.
        """
        outputs, labels = logits["logits"], batch["label"]
        if self.kind == "classification":
            smoothing = self.options.label_smoothing
            return of_classes(outputs, labels, smoothing)
        if self.kind == "multilabel":
            import optax  # inference has no loss

            return optax.sigmoid_binary_cross_entropy(outputs, labels).mean(axis=-1)
        return jnp.square(outputs[:, 0] - labels)

    def soft_losses(
        self, logits: Arrays, targets: Arrays, batch: Arrays
    ) -> Float[Array, "batch"]:
        """Returns the divergence of classes, or the mean of the labels', or for numbers
        the squared difference."""
        if self.kind == "classification":
            return super().soft_losses(logits, targets, batch)
        outputs, theirs = logits["logits"], targets["logits"]
        if self.kind == "regression":
            return jnp.square(outputs[:, 0] - theirs[:, 0])
        heat = self.options.teacher_temperature
        # A label is one of two classes, whose logits are 0 and its own.
        own, its = (jnp.stack([0 * x, x], axis=-1) for x in (outputs, theirs))
        return distillation.soft_loss(own, its, heat).mean(axis=-1)

    def row_weights(self, batch: Arrays) -> Float[Array, "batch"]:
        """Returns 1 per row, or its class's weight (`task.class_weights=balanced`)."""
        weights = super().row_weights(batch)
        if self.options.class_weights != "balanced":
            return weights
        return weights * jnp.asarray(self._class_weights)[batch["label"]]

    @functools.cached_property
    def _class_weights(self) -> Float[np.ndarray, "labels"]:
        """Weights as in scikit-learn's class_weight="balanced".

        They are records / (classes x records of the class) in the training data, or 1
        for a class without records.
        """
        labels = [example["label"] for example in self.examples("train")]
        counts = np.bincount(np.array(labels, int), minlength=len(self.labels))
        rare = np.maximum(counts, 1) * np.count_nonzero(counts)
        weights = np.where(counts, len(labels) / rare, 1.0)
        return weights.astype(np.float32)

    def fit_to_rows(self, examples: Sequence[Row], answers: Answers) -> dict[str, Any]:
        """Fits `temperature` or `thresholds`, by `config.task.calibration`."""
        labels = [example["label"] for example in examples]
        if self._calibration == "none" or None in labels:
            return {}
        logits, targets = np.array(answers), np.array(labels, int)
        if self._calibration == "temperature":
            value: Any = calibration.fit_temperature(logits, targets)
        else:
            columns = zip(logits.T, targets.T, strict=True)
            value = [calibration.best_threshold(*each) for each in columns]
        return {self._calibration: value}

    def guess(self, answer: np.ndarray) -> int | float | tuple[int, ...]:
        """Turns logits into a label. Multilabel predicts labels from 0.5 on, or from
        the fitted thresholds."""
        if self.kind == "classification":
            return int(np.argmax(answer))
        if self.kind == "multilabel":
            given = answer >= np.array(self.fitted.get("thresholds", 0.0))
            return tuple(given.astype(int).tolist())
        return float(answer[0])

    def probabilities(self, answer: np.ndarray) -> np.ndarray:
        """Returns the labels' probabilities, at the fitted temperature if any."""
        logits = answer.astype(np.float64) / self.fitted.get("temperature", 1.0)
        one = self.kind == "classification"
        return scores.softmax(logits) if one else scores.sigmoid(logits)

    def format_answer(self, example: Row, answer: np.ndarray) -> Row:
        """Returns `label` (or `labels`) with probabilities as `scores`, or `score`."""
        shown = self._shown(self.guess(answer))
        if self.kind == "regression":
            return {"score": shown}
        one = self.kind == "classification"
        shares = self.probabilities(answer).tolist()
        probabilities = dict(zip(self.labels, shares, strict=True))
        return {"label" if one else "labels": shown, "scores": probabilities}

    def _shown(self, label: Any) -> Any:
        """Returns a label by its name."""
        if isinstance(label, tuple):
            return [n for n, held in zip(self.labels, label, strict=True) if held]
        return self.labels[label] if isinstance(label, int) else label

    @property
    def score_names(self) -> tuple[str, ...]:
        """SCORES to report. `macro_f1` also adds `f1:CLASS` of each class."""
        if self.kind == "classification" and len(self.labels) != 2:
            return ("accuracy", "macro_f1")
        return tuple(SCORES[self.kind])

    def scores(
        self, split: str, examples: Sequence[Row], answers: Answers
    ) -> dict[str, float]:
        """Returns the scores of `score_names`, fractions, or none without all labels.

        For two classes, F1 is that of the second in sorted order ("1", "yes", "pos"),
        as in scikit-learn, whatever the order of the model's outputs.
        """
        targets = [example.get("label") for example in examples]
        if not targets or None in targets:
            return {}
        labels = np.array(targets)
        guesses = np.array([self.guess(answer) for answer in answers])
        functions, names = SCORES[self.kind], list(self.labels)
        if self.kind == "classification":
            names = texts.sorted_labels(set(self.labels))
            ranks = np.array([names.index(name) for name in self.labels])
            labels, guesses = ranks[labels], ranks[guesses]
        if self.kind == "regression":
            labels = labels.astype(np.float64)
        found = {name: functions[name](labels, guesses) for name in self.score_names}
        if "macro_f1" in found:
            each = scores.f1_of_each(labels, guesses, len(names)).tolist()
            found |= {f"f1:{name}": x for name, x in zip(names, each, strict=True)}
        return found

    def baseline_scores(self, split: str, examples: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of always giving the split's majority label (or mean)."""
        labels = [example["label"] for example in examples]
        if self.kind == "regression":
            answer = np.array([np.mean(np.array(labels))])
        else:
            label = np.array(Counter(labels).most_common(1)[0][0])
            if self.kind == "classification":
                label = np.arange(len(self.labels)) == label
            answer = np.where(label, np.inf, -np.inf)  # whatever was fitted
        return self.scores(split, examples, [answer] * len(examples))

    def prediction_row(self, example: Row, answer: np.ndarray) -> Row:
        """Returns `text`, `text_b` of a pair, `format_answer`, and `gold` if known."""
        row: Row = {"text": example["text"]}
        if example.get("text_b") is not None:
            row["text_b"] = example["text_b"]
        row |= self.format_answer(example, answer)
        if example["label"] is not None:
            row["gold"] = self._shown(example["label"])
        return row

    def write_predictions(
        self, folder: Path, split: str, examples: Sequence[Row], answers: Answers
    ) -> None:
        """Writes `SPLIT.jsonl`, and `SPLIT_classes.txt` with `class_tables`."""
        if tables := self.class_tables(examples, answers):
            write_atomically(folder / f"{split}_classes.txt", tables + "\n")
        super().write_predictions(folder, split, examples, answers)

    def score_details(self, examples: Sequence[Row], answers: Answers) -> str:
        """Returns `class_tables`, unless they are too large for a screen, and whether
        the rows determined the temperature."""
        few = len(self.labels) <= _SHOWN
        shown = [self.class_tables(examples, answers)] if few else []
        if (heat := self.fitted.get("temperature")) in calibration.TEMPERATURES:
            shown.append(
                f"temperature {heat:g}: is an end of its range, because dev's rows "
                "have no best one; name more rows, or leave out task.calibration"
            )
        return "\n\n".join(filter(None, shown))

    def class_tables(self, examples: Sequence[Row], answers: Answers) -> str:
        """Formats each class's precision, recall and F1, and the confusion matrix.

        Without a guess the precision is 0, as in scikit-learn. The text is empty
        without classes or labels.
        """
        if self.kind != "classification" or None in (x["label"] for x in examples):
            return ""
        counts = np.zeros((len(self.labels), len(self.labels)), np.int64)
        labels = np.array([example["label"] for example in examples], int)
        guesses = np.array([self.guess(answer) for answer in answers], int)
        np.add.at(counts, (labels, guesses), 1)
        right, guessed, there = (
            counts.diagonal(),
            counts.sum(axis=0),
            counts.sum(axis=1),
        )
        shares = (
            right / np.maximum(guessed, 1),
            right / np.maximum(there, 1),
            2 * right / np.maximum(guessed + there, 1),
        )
        columns = [[f"{x:.4f}" for x in each] for each in shares]
        rows = list(zip(self.labels, *columns, map(str, there), strict=True))
        table = terminal.format_table(
            rows, ("class", "precision", "recall", "f1", "records")
        )
        pairs = zip(self.labels, counts, strict=True)
        cells = [(name, *map(str, row)) for name, row in pairs]
        matrix = terminal.format_table(cells, ("true \\ predicted", *self.labels))
        probabilities = np.array([self.probabilities(answer) for answer in answers])
        error = calibration.expected_calibration_error(probabilities, labels)
        return f"{table}\n\n{matrix}\n\nexpected calibration error: {error:.4f}"
