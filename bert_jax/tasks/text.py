"""Texts and pairs: prediction of a class, several labels at once, or a number.

The rows are those of `data/texts.py`: the user's tables. IMDb (imdb.py) and GLUE
(glue/) add the sources of their rows.
"""

import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import fields
from bert_jax.convert import layout
from bert_jax.data import texts, truncation
from bert_jax.data.rows import Feature
from bert_jax.data.tables import ColumnSpec, Row
from bert_jax.errors import UserError
from bert_jax.scores import calibration
from bert_jax.scores import classification as scores
from bert_jax.tasks import windows
from bert_jax.tasks.cross_entropy import class_cross_entropy
from bert_jax.tasks.definition import Answers, TaskDefinition, numbered_lines
from bert_jax.types import Arrays

log = logging.getLogger(__name__)

# Scores of each kind, the main one first.
SCORES: dict[str, dict[str, Callable[..., float]]] = {
    "classification": {
        "accuracy": scores.accuracy,
        "f1": scores.binary_f1,  # of the positive class of two
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
# Scores of two classes by the difference of their logits.
RANKED = {
    "average_precision": scores.average_precision,
    "roc_auc": scores.roc_auc,
}
# Fields that are not for every kind, with a value of theirs, or None for all but the
# default, and the kinds.
_LIMITED = (
    ("class_weights", None, ("classification",)),
    ("weighted_scores", None, ("classification", "multilabel")),
    ("label_smoothing", None, ("classification",)),
    ("positive_label", None, ("classification",)),
    ("teacher_temperature", None, ("classification", "multilabel")),
    ("label_names", None, ("classification", "multilabel")),
    ("calibration", "temperature", ("classification", "multilabel")),
    ("calibration", "thresholds", ("classification", "multilabel")),
)
_BALANCED = ("balanced",)  # class_weights
_SHOWN = 20  # maximum number of classes whose tables are printed


class Text(TaskDefinition):
    """Texts of tables (data/tables.py). A subclass may read others: see `read_rows`.

    From `config.task` the task reads `train_file`, `dev_file` and `test_file` (empty
    means none), their `format`, the columns `text`, `text_b` and `label`,
    `label_separator`, `kind` (classification, multilabel or regression) and
    `truncation` (of single texts: head, tail, head_tail). If `labels` is empty, the
    labels are those of the training data, integers in numeric order, names in
    alphabetical order, or `label_names` in their order.

    In the rows of `number_labels`, `label` is the index of the class, a tuple with 0 or
    1 for each label (multilabel), a number (regression), or None if it is unknown. An
    answer is the row's logits, [labels].
    """

    heads: ClassVar[tuple[str, ...]] = ("sequence_classification",)

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
          UserError: One is not for this kind.
        """
        for name, limited, kinds in _LIMITED:
            default = fields.TASK[f"task.{name}"].default
            value = self.options[name]
            is_set = value != default if limited is None else value == limited
            if is_set and self.kind not in kinds:
                raise UserError(
                    f"config.task.{name}={value}: is for config.task.kind="
                    f"{' or '.join(kinds)}, not for {self.kind}"
                )
        if (
            self.options.calibration == "thresholds"
            and self.kind == "classification"
            and len(self.labels) not in (0, 2)
        ):
            raise UserError(
                "config.task.calibration=thresholds: is for two classes, of which "
                f"there are {len(self.labels)}, or for config.task.kind=multilabel"
            )
        chosen, two = self.options.positive_label, len(self.labels) == 2
        positive = texts.positive_label(self.labels, chosen) if two else None
        if chosen and self.labels and positive not in self.labels:
            raise UserError(
                f"config.task.positive_label={chosen}: must be one of two classes; "
                f"there are {', '.join(map(repr, self.labels)):.200}"
            )

    @property
    def loss_name(self) -> str:
        return f"{self.kind}_loss"

    @property
    def main_score(self) -> str:
        return next(iter(SCORES[self.kind]))

    @property
    def sequences(self) -> int:
        return int(self.options.windows)

    @property
    def kind(self) -> str:
        """classification, multilabel or regression."""
        return str(self.options.kind)

    @property
    def pairs(self) -> bool:
        """Whether every row is a pair. False means that a row may be one."""
        return bool(self.options.text_b)

    def read_rows(self, split: str) -> Sequence[Row] | None:
        """Reads a split's rows, with labels by name. Only `test` may be unlabeled."""
        options = self.options
        source = self.split_file(split)
        if not source:
            return None
        weighs = split == "train" or options.weighted_scores
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
            weight=options.weight if weighs else "",
        )

    def group_names(self, rows: Sequence[Row]) -> list[str]:
        return [*map(texts.group_name, rows)]

    @property
    def row_fields(self) -> tuple[str, ...]:
        return ("text", "text_b") if self.pairs else ("text",)

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
        if text_b is not None and self.sequences > 1:
            raise ValueError('"text_b": only single texts have windows (task.windows)')
        if text_b is None and self.pairs:
            raise ValueError('"text_b" is required, a string: the task is of pairs')
        return {"text": text, "text_b": text_b}

    def number_labels(self, rows: Sequence[Row]) -> list[Row]:
        """Returns rows whose labels are numbers. They must occur in the training
        data."""
        known = self._known_labels()
        return [
            {"id": index, **row, "label": self._target(row, known)}
            for index, row in enumerate(rows)
        ]

    def _known_labels(self) -> dict[str, int]:
        """Returns the index of each label, by its name and by its name in the data.

        Without labels before the "=" of `label_names` the latter is 0, 1, ...
        """
        names = self.labels
        known = {texts.label_name(name): index for index, name in enumerate(names)}
        for index, pair in enumerate(self.options.label_names):
            old, _, new = pair.partition("=") if "=" in pair else (str(index), "", pair)
            if new in names:
                known[texts.label_name(old)] = names.index(new)
        numbers = tuple(map(str, range(len(names))))
        unnamed = layout.default_labels(len(names))
        for own, others in ((unnamed, numbers), (numbers, unnamed)):
            if names == own:
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
                    f"\"('{name:.60}={next(iter(known), 'NAME')}', ...)\""
                )
        if isinstance(label, str):
            return known[label]
        held = {known[name] for name in label}
        return tuple(int(index in held) for index in range(1 + max(known.values())))

    def infer_fields(self) -> dict[str, Any]:
        """Returns `task.labels`, of the training data or one output for a number, and
        `task.label_names`.

        Raises:
          UserError: There are fewer than two classes, or no label.
        """
        if self.labels:
            return {}
        if self.kind == "regression":
            return {"task.labels": ("score",)}
        if not (rows := self.rows("train")):
            raise UserError(
                f"config.task.train_file={self.options.train_file!r}: is empty, or has "
                "no records; name a file that has some, or the labels in task.labels"
            )
        counts = Counter(x for r in rows for x in texts.label_names(r["label"]))
        width = max((row.get("width", 0) for row in rows), default=0)
        names = texts.sorted_labels({*counts, *map(str, range(width))})
        if width and not self.options.label_names:
            what = "train: lists of 0 and 1, read by index (task.label_names names it)"
            self.text.notices[what] = len(rows)
        # Labels that are named are classes, not scores.
        for line in texts.label_warnings(
            counts, "" if self.options.label_names else self.kind
        ):
            log.warning("warning: %s: %s", self.options.train_file, line)
        if self.options.label_names:
            named = self._name_labels(names)
            labels = tuple(name.partition("=")[2] for name in named)
            return {"task.labels": labels, "task.label_names": named}
        least = 2 if self.kind == "classification" else 1
        if len(names) < least:
            listed = ", ".join(map(repr, names)) or "none"
            raise UserError(
                f"config.task: labels in the training data: {listed}; at least {least} "
                "are required: name the file and the column that have them"
            )
        return {"task.labels": tuple(names)}

    def _name_labels(self, found: Sequence[str]) -> tuple[str, ...]:
        """Returns `label_names`, each as LABEL=NAME.

        Names without labels are those of the training data's, in order.

        Raises:
          UserError: There are fewer names than labels, or more.
        """
        names = tuple(self.options.label_names)
        if all("=" in name for name in names):
            return names
        if len(found) != len(names):
            raise UserError(
                f"config.task.label_names: {len(names)} names, but the training data "
                f"has {len(found)} labels: {', '.join(found):.200}; name each of them, "
                "or write LABEL=NAME"
            )
        return tuple(f"{old}={new}" for old, new in zip(found, names, strict=True))

    def encode(self, rows: Sequence[Row], split: str) -> list[Feature]:
        """Encodes each row as one sequence. A second text without any token counts as
        no second text, as in run_classifier.py."""
        labels = [row.get("label") for row in rows]
        several, labelled = self.kind == "multilabel", None not in labels
        features = []
        first = self.text.tokenize([row["text"] for row in rows], offsets=False)
        others = [row.get("text_b") or "" for row in rows]
        second = self.text.tokenize(others, offsets=False)
        room, overlap = self.text.max_seq_length - 2, self.options.window_overlap
        max_tokens = room + (self.sequences - 1) * (room - overlap)
        columns: dict[str, Any]
        for index, (a, b) in enumerate(zip(first, second, strict=True)):
            if self.sequences > 1:
                ids = a.ids
                if len(ids) > max_tokens:
                    what = f"{split}: texts longer than their windows, cut"
                    self.text.notices[what] += 1
                    how = self.options.truncation
                    ids = truncation.truncate_tokens(ids, max_tokens, how)
                parts = windows.cut_windows(ids, room, overlap)
                found = [self.text.sequence(part, None, split) for part in parts]
                columns = {**self.text.group(found, self.sequences)}
            else:
                columns = {**self.text.sequence(a.ids, b.ids or None, split)}
            if labelled:
                label: Any = labels[index]
                columns["label"] = np.array(label, np.float32) if several else label
            if split == "train" and self.options.weight:
                columns["weight"] = np.float32(rows[index]["weight"])
            features.append(Feature(index, columns))
        return features

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        """Returns the cross entropy in nats, as Hugging Face does.

        For multilabel it is the mean over labels, for regression the squared error.
        """
        outputs, labels = logits["logits"], batch["label"]
        if self.kind == "classification":
            smoothing = self.options.label_smoothing
            return class_cross_entropy(outputs, labels, smoothing)
        if self.kind == "multilabel":
            import optax  # inference has no loss

            return optax.sigmoid_binary_cross_entropy(outputs, labels).mean(axis=-1)
        return jnp.square(outputs[:, 0] - labels)

    def row_weights(self, batch: Arrays) -> Float[Array, "batch"]:
        """Returns 1 per row, times its own weight (`task.weight`) and its class's
        (`task.class_weights`)."""
        weights = super().row_weights(batch)
        if "weight" in batch:
            weights = weights * batch["weight"]
        if not self.options.class_weights:
            return weights
        return weights * jnp.asarray(self._class_weights)[batch["label"]]

    @functools.cached_property
    def _class_weights(self) -> Float[np.ndarray, "labels"]:
        """The given weights, or `texts.balanced_weights` of the training data.

        Raises:
          UserError: A weight is given for no label.
        """
        if self.options.class_weights != _BALANCED:
            return self._given_weights()
        labels = [row["label"] for row in self.number_labels(self.rows("train"))]
        return texts.balanced_weights(np.array(labels, int), len(self.labels))

    def _given_weights(self) -> Float[np.ndarray, "labels"]:
        """Returns the weight of each class, or 1. Raises UserError if a weight is given
        for no label."""
        given, known = self.options.class_weights, self._known_labels()
        weights = np.ones(len(self.labels), np.float32)
        for name, _, weight in (item.rpartition("=") for item in given):
            if (label := texts.label_name(name)) not in known:
                raise UserError(
                    f"config.task.class_weights={given}: {name!r} is no label; "
                    f"there are {', '.join(map(repr, self.labels)):.200}"
                )
            weights[known[label]] = float(weight)
        return weights

    def fit(self, rows: Sequence[Row], answers: Answers | None) -> dict[str, Any]:
        """Fits `temperature` or `thresholds` to dev, by `config.task.calibration`."""
        what = self.options.calibration
        if answers is None and self.options.class_weights not in ((), _BALANCED):
            self._given_weights()  # refuses what is no label, before a run begins
        if answers is None or what == "none":
            return {}
        if None in (labels := [row["label"] for row in rows]):
            return {}
        logits, targets = np.array(answers), np.array(labels, int)
        if what == "temperature":
            value: Any = calibration.fit_temperature(logits, targets)
        else:
            names = self.labels
            if self.kind == "classification":
                logits = self._margins(logits, self._positive)[:, None]
                targets = (targets[:, None] == self._positive).astype(int)
                names = (self.labels[self._positive],)
            columns = zip(names, logits.T, targets.T, strict=True)
            least = self.options.min_precision
            value = {n: calibration.best_threshold(x, y, least) for n, x, y in columns}
        return {what: value}

    @property
    def _positive(self) -> int:
        """The index of the positive class of two."""
        return self.labels.index(
            texts.positive_label(self.labels, self.options.positive_label)
        )

    def _margins(self, logits: Float[np.ndarray, "*rows classes"], index: int) -> Any:
        """Returns by how much one of two classes is ahead, [*rows]."""
        return logits[..., index] - logits[..., 1 - index]

    def guess(self, answer: np.ndarray) -> int | float | tuple[int, ...]:
        """Turns logits into a label. Multilabel predicts labels from 0.5 on, or from
        the fitted thresholds, as the positive class of two."""
        thresholds = self.fitted.get("thresholds", {})
        if self.kind == "classification":
            if not thresholds:
                return int(np.argmax(answer))
            ((name, least),) = thresholds.items()  # of the class it was fitted for
            index = self.labels.index(name)
            return index if self._margins(answer, index) >= least else 1 - index
        if self.kind == "multilabel":
            given = answer >= np.array([thresholds.get(x, 0.0) for x in self.labels])
            return tuple(given.astype(int).tolist())
        return float(answer[0])

    def probabilities(self, answer: np.ndarray) -> np.ndarray:
        """Returns the labels' probabilities, at the fitted temperature if any."""
        logits = answer.astype(np.float64) / self.fitted.get("temperature", 1.0)
        one = self.kind == "classification"
        return scores.softmax(logits) if one else calibration.sigmoid(logits)

    def format_answer(self, row: Row, answer: np.ndarray) -> Row:
        """Returns `label` (or `labels`) with probabilities as `scores`, or `score`."""
        shown = self._format_label(self.guess(answer))
        if self.kind == "regression":
            return {"score": shown}
        one = self.kind == "classification"
        shares = self.probabilities(answer).tolist()
        probabilities = dict(zip(self.labels, shares, strict=True))
        return {"label" if one else "labels": shown, "scores": probabilities}

    def _format_label(self, label: Any) -> Any:
        """Returns a label by its name."""
        if isinstance(label, tuple):
            return [n for n, held in zip(self.labels, label, strict=True) if held]
        return self.labels[label] if isinstance(label, int) else label

    @property
    def score_names(self) -> tuple[str, ...]:
        """SCORES and RANKED to report. `macro_f1` also adds `f1:CLASS` of each
        class."""
        if self.kind != "classification":
            return tuple(SCORES[self.kind])
        two = len(self.labels) == 2
        return (*SCORES[self.kind], *RANKED) if two else ("accuracy", "macro_f1")

    def scores(self, rows: Sequence[Row], answers: Answers) -> dict[str, float]:
        """Returns the scores of `score_names`, fractions, or none without all labels.

        For two classes, F1 is that of `task.positive_label`. By default this is the
        second in sorted order ("1", "yes", "pos"), as in scikit-learn, whatever the
        order of the model's outputs.
        """
        targets = [row.get("label") for row in rows]
        if not targets or None in targets:
            return {}
        labels, guesses = np.array(targets), np.array([*map(self.guess, answers)])
        functions, names = SCORES[self.kind], list(self.labels)
        if self.kind == "classification":
            names = texts.sorted_labels(set(self.labels))
            if len(names) == 2:
                names.sort(key=lambda name: name == self.labels[self._positive])
            ranks = np.array([names.index(name) for name in self.labels])
            labels, guesses = ranks[labels], ranks[guesses]
        if self.kind == "regression":
            labels = labels.astype(np.float64)
        given = [labels, guesses]
        if self.options.weighted_scores:
            given.append(np.array([row["weight"] for row in rows]))
        asked = self.score_names
        found = {x: functions[x](*given) for x in asked if x in functions}
        ranked = [name for name in asked if name in RANKED]
        if ranked and 0 < labels.sum() < len(labels):
            margins = self._margins(np.array(answers), self._positive)
            found |= {x: RANKED[x](labels, margins, *given[2:]) for x in ranked}
        if "macro_f1" in found:
            each = scores.f1_of_each(labels, guesses, len(names), *given[2:]).tolist()
            found |= {f"f1:{name}": x for name, x in zip(names, each, strict=True)}
        return found

    def baseline_scores(self, rows: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of always giving the split's majority label (or mean)."""
        labels = [row["label"] for row in rows]
        if self.kind == "regression":
            answer = np.array([np.mean(np.array(labels))])
        else:
            label = np.array(Counter(labels).most_common(1)[0][0])
            if self.kind == "classification":
                label = np.arange(len(self.labels)) == label
            answer = np.where(label, np.inf, -np.inf)  # whatever was fitted
        return self.scores(rows, [answer] * len(rows))

    def prediction_files(
        self, split: str, rows: Sequence[Row], answers: Answers
    ) -> dict[str, str]:
        """Returns `SPLIT.jsonl`, and `SPLIT_classes.txt` with `class_tables`.

        A line has `index`, `text`, `text_b` of a pair, `format_answer`, and `gold` if
        it is known.
        """
        lines = []
        for row, answer in zip(rows, answers, strict=True):
            line = {"text": row["text"]}
            if row.get("text_b") is not None:
                line["text_b"] = row["text_b"]
            line |= self.format_answer(row, answer)
            if row["label"] is not None:
                line["gold"] = self._format_label(row["label"])
            lines.append(line)
        tables = self.class_tables(rows, answers)
        files = {f"{split}_classes.txt": f"{tables}\n"} if tables else {}
        return {**files, f"{split}.jsonl": numbered_lines(lines)}

    def score_details(self, rows: Sequence[Row], answers: Answers) -> str:
        """Returns `class_tables`, unless they are too large for a screen, and
        `calibration.describe`."""
        few = len(self.labels) <= _SHOWN
        shown = [self.class_tables(rows, answers)] if few else []
        shown.append(calibration.describe(self.fitted))
        return "\n\n".join(filter(None, shown))

    def class_tables(self, rows: Sequence[Row], answers: Answers) -> str:
        """Returns `scores.class_tables`, or no text without classes or labels."""
        labels = [row["label"] for row in rows]
        if self.kind != "classification" or None in labels:
            return ""
        guesses = np.array([self.guess(answer) for answer in answers], int)
        probabilities = np.array([self.probabilities(answer) for answer in answers])
        given = (np.array(labels, int), guesses, probabilities)
        return scores.class_tables(self.labels, *given)
