"""SWAG (section 4.4) and HellaSwag: choice of the ending that follows a context."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from bert_jax.data.rows import Feature
from bert_jax.data.tables import ANY, Row, read_table
from bert_jax.errors import UserError
from bert_jax.scores import classification as scores
from bert_jax.tasks import row_files
from bert_jax.tasks.cross_entropy import class_cross_entropy
from bert_jax.tasks.definition import Answers, TaskDefinition
from bert_jax.tasks.task import require_text
from bert_jax.types import Arrays

CHOICES = 4
# SWAG's columns.
OFFICIAL = ("sent1", "sent2", *(f"ending{n}" for n in range(CHOICES)))


def read_choices(source: str, labelled: bool) -> list[Row]:
    """Reads contexts with their endings.

    The source is SWAG's official CSV or has the same columns from the Hub
    (hf:allenai/swag:regular:train), or has `context`, `endings` and `label` from JSON
    lines or TFDS (tfds:hellaswag:train).

    In SWAG the context is `sent1`, a whole sentence. An ending is `sent2`, the start of
    the next sentence, plus one of `ending0` to `ending3` (section 4.4: the given
    sentence is A, a possible continuation is B).

    Args:
      labelled: Whether each record must have a label. Otherwise it may be missing,
        empty or -1.

    Returns:
      Rows of `context`, `endings` and `label`, the index of the right one or None.

    Raises:
      UserError: a record has another format. The message names file and line.
    """
    rows = []
    parse = functools.partial(choice_fields, count=CHOICES)
    for where, fields in read_table(source, ANY):
        row = row_files.parse_row(where, fields, parse)
        label = str(fields.get("label", ""))
        if label in map(str, range(CHOICES)):
            row["label"] = int(label)
        elif labelled or label not in ("", "None", "-1"):
            raise UserError(
                f"{where}: 'label' is {label!r:.60}; it must be a number from 0 to "
                f"{CHOICES - 1}, the right ending's"
            )
        rows.append(row)
    return rows


def choice_fields(fields: Row, count: int = 0) -> Row:
    """Returns `context`, `endings` and no `label`, from these fields or SWAG's columns.

    Args:
      count: Required number of endings. 0 means two or more.

    Raises:
      ValueError: a field is missing or wrong.
    """
    if "sent1" in fields:
        context, begin, *ends = (require_text(fields, name) for name in OFFICIAL)
        endings: Any = [f"{begin} {ending}" for ending in ends]
    else:
        context, endings = require_text(fields, "context"), fields.get("endings")
    if not isinstance(endings, list) or not all(isinstance(x, str) for x in endings):
        raise ValueError('"endings" is required, a list of strings')
    if len(endings) < 2 or count not in (0, len(endings)):
        raise ValueError(f"{len(endings)} endings; there must be {count or 2}")
    return {"context": context, "endings": endings, "label": None}


class Swag(TaskDefinition):
    """Each ending is a sequence: [CLS] context [SEP] ending [SEP].

    The logit of an ending is the dot product of a learned vector with its pooled
    output, and the softmax is over endings. The paper uses [CLS]'s vector C. Its
    released code and Hugging Face's BertForMultipleChoice use the pooler's output.

    `config.task.train_file`, `dev_file` and `test_file` are sources as `read_choices`
    takes them, or empty. An answer is the row's logits, one for each ending.
    """

    heads = ("multiple_choice",)
    loss_name = "choice_loss"
    main_score = "accuracy"
    sequences = CHOICES
    row_fields = ("context", "endings")

    def read_rows(self, split: str) -> list[Row] | None:
        """Reads the records of a split. `test` may be unlabeled."""
        source = self.split_file(split)
        return read_choices(source, labelled=split != "test") if source else None

    def group_names(self, rows: Sequence[Row]) -> list[str]:
        return [row["context"] for row in rows]

    def encode(self, rows: Sequence[Row], split: str) -> list[Feature]:
        """Returns features of [endings, length] arrays.

        They are padded to the row's longest ending and to the largest number of
        endings in `rows`. Long pairs are cut as in run_classifier.py.
        """
        max_endings = max((len(row["endings"]) for row in rows), default=0)
        labelled = all(row["label"] is not None for row in rows)
        contexts = self.text.tokenize([row["context"] for row in rows], offsets=False)
        texts = [ending for row in rows for ending in row["endings"]]
        endings = self.text.tokenize(texts, offsets=False)
        features = []
        for index, (row, a) in enumerate(zip(rows, contexts, strict=True)):
            row_endings = itertools.islice(endings, len(row["endings"]))
            sequences = [self.text.sequence(a.ids, b.ids, split) for b in row_endings]
            columns: dict[str, Any] = {**self.text.group(sequences, max_endings)}
            if labelled:
                columns["label"] = row["label"]
            features.append(Feature(index, columns))
        return features

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        """Returns the cross entropy over the endings, in nats."""
        return class_cross_entropy(logits["logits"], batch["label"])

    def decode_answers(
        self, rows: Sequence[Row], features: Sequence[Feature], outputs: Answers
    ) -> list[np.ndarray]:
        """Returns the logits of each row's endings."""
        pairs = zip(rows, outputs, strict=True)
        return [output["logits"][: len(row["endings"])] for row, output in pairs]

    def scores(self, rows: Sequence[Row], answers: Answers) -> dict[str, float]:
        """Returns `accuracy`, a fraction, or nothing if a label is unknown."""
        if not rows or any(row["label"] is None for row in rows):
            return {}
        labels = np.array([row["label"] for row in rows])
        guesses = np.array([np.argmax(answer) for answer in answers])
        return {"accuracy": scores.accuracy(labels, guesses)}

    def baseline_scores(self, rows: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of always choosing this split's most frequent label."""
        majority = np.argmax(np.bincount(np.array([row["label"] for row in rows])))
        return self.scores(rows, [np.eye(CHOICES)[majority]] * len(rows))

    def parse_row(self, row: Row) -> Row:
        """Takes `context` and two or more `endings`, or SWAG's columns."""
        return choice_fields(row)

    def format_answer(self, row: Row, answer: np.ndarray) -> Row:
        """Returns `label`, the ending's index from 0, and `scores`, probabilities."""
        shares = scores.softmax(answer.astype(np.float64))
        return {"label": int(np.argmax(answer)), "scores": shares.tolist()}
