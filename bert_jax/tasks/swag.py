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
from bert_jax.tasks.cross_entropy import of_classes
from bert_jax.tasks.finetuning import Answers, Finetuning, Outputs
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
    parse = functools.partial(choice_fields, most=CHOICES)
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


def choice_fields(fields: Row, most: int = 0) -> Row:
    """Returns `context`, `endings` and no `label`, from these fields or SWAG's columns.

    Args:
      most: Required number of endings. 0 means two or more.

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
    if len(endings) < 2 or most not in (0, len(endings)):
        raise ValueError(f"{len(endings)} endings; there must be {most or 2}")
    return {"context": context, "endings": endings, "label": None}


class Swag(Finetuning):
    """Each ending is a sequence: [CLS] context [SEP] ending [SEP].

    The logit of an ending is the dot product of a learned vector with its pooled
    output, and the softmax is over endings. The paper uses [CLS]'s vector C. Its
    released code and Hugging Face's BertForMultipleChoice use the pooler's output.

    Args:
      config: The whole config. `config.task.train_file`, `dev_file` and `test_file` are
        sources as `read_choices` takes them, or empty.

    An answer is the example's logits, one for each ending.
    """

    head = "multiple_choice"
    loss_name = "choice_loss"
    main_score = "accuracy"

    def read_file(self, source: str, split: str) -> list[Row]:
        """Reads the records of a split. `test` may be unlabeled."""
        return read_choices(source, labelled=split != "test")

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Returns features of [endings, length] arrays.

        They are padded to the example's longest ending and to the largest number of
        endings in `examples`. Long pairs are cut as in run_classifier.py.
        """
        most = max((len(example["endings"]) for example in examples), default=0)
        labelled = all(example["label"] is not None for example in examples)
        contexts = self.tokenize_texts(
            [row["context"] for row in examples], offsets=False
        )
        texts = [ending for row in examples for ending in row["endings"]]
        endings = self.tokenize_texts(texts, offsets=False)
        features = []
        for index, (row, a) in enumerate(zip(examples, contexts, strict=True)):
            own = itertools.islice(endings, len(row["endings"]))
            sequences = [self.sequence(a.ids, b.ids, split) for b in own]
            columns: dict[str, Any] = {**self.grouped(sequences, most)}
            if labelled:
                columns["label"] = row["label"]
            features.append(Feature(index, columns))
        return features

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        """Returns the cross entropy over the endings, in nats."""
        return of_classes(logits["logits"], batch["label"])

    def decode_answers(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[np.ndarray]:
        """Returns the logits of each example's endings."""
        return [
            output["logits"][: len(example["endings"])]
            for example, output in zip(examples, outputs, strict=True)
        ]

    def scores(
        self, split: str, examples: Sequence[Row], answers: Answers
    ) -> dict[str, float]:
        """Returns `accuracy`, a fraction, or nothing if a label is unknown."""
        if not examples or any(example["label"] is None for example in examples):
            return {}
        labels = np.array([example["label"] for example in examples])
        guesses = np.array([np.argmax(answer) for answer in answers])
        return {"accuracy": scores.accuracy(labels, guesses)}

    def baseline_scores(self, split: str, examples: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of always choosing this split's most frequent label."""
        majority = np.argmax(np.bincount(np.array([e["label"] for e in examples])))
        return self.scores(split, examples, [np.eye(CHOICES)[majority]] * len(examples))

    def prediction_row(self, example: Row, answer: np.ndarray) -> Row:
        """Returns `format_answer`, and `gold` if known."""
        row, gold = self.format_answer(example, answer), example["label"]
        return row if gold is None else {**row, "gold": gold}

    def parse_row(self, row: Row) -> Row:
        """Takes `context` and two or more `endings`, or SWAG's columns."""
        return choice_fields(row)

    def format_answer(self, example: Row, answer: np.ndarray) -> Row:
        """Returns `label`, the ending's index from 0, and `scores`, probabilities."""
        shares = scores.softmax(answer.astype(np.float64))
        return {"label": int(np.argmax(answer)), "scores": shares.tolist()}

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a sequence for each ending."""
        return (CHOICES, self.options.max_seq_length)
