"""A fine-tuning task as its author writes it: values and a few functions.

`tasks.finetuning.Finetuning` makes a run's task of it: batches, model, teacher,
windows, evaluation and prediction need nothing more.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxtyping import Array, Float
from ml_collections import FrozenConfigDict

from bert_jax.data import overlap
from bert_jax.data.rows import Feature
from bert_jax.data.tables import ANY, ColumnSpec, Row
from bert_jax.tasks.sequences import Sequences
from bert_jax.tasks.task import json_lines
from bert_jax.types import Arrays

NO_LABEL = -1  # in a column `labels`, for a token that is not tagged
Answers = Sequence[Any]
Outputs = dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class TaskDefinition(abc.ABC):
    """A fine-tuning task. A row is a dict, with the keys that its functions agree on.

    `read_rows`, `parse_row`, `encode`, `row_losses`, `format_answer` and `scores` have
    to be defined, with `heads`, `loss_name` and `main_score`.

    Attributes:
      config: The whole config.
      options: Every field of `config.task`, with the default where this task has none.
      text: Vocabulary, and how texts become sequences. `text.notices` counts rows that
        were cut, skipped or changed.
      rows: Function that returns the rows of a split as `read_rows` does, read once.
      fitted: Values that a run has learned in addition to its weights, see `fit`.
    """

    config: FrozenConfigDict
    options: FrozenConfigDict
    text: Sequences
    rows: Callable[[str], Sequence[Row]]
    fitted: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:  # noqa: B027  (most configs are right)
        """Checks the config, whose labels may still be open.

        Raises:
          UserError: The task cannot have such a config.
        """

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's outputs, in order."""
        return tuple(self.options.labels)

    def split_file(self, split: str) -> str:
        """Returns `config.task.SPLIT_file`, empty for a split without such a field."""
        return str(self.options.get(f"{split}_file") or "")

    @property
    @abc.abstractmethod
    def heads(self) -> tuple[str, ...]:
        """The model's heads, see `models.architectures.BertWithHeads`."""

    @property
    @abc.abstractmethod
    def loss_name(self) -> str:
        """Name of the loss in metrics.jsonl."""

    @property
    @abc.abstractmethod
    def main_score(self) -> str:
        """Name of the score that selects the best checkpoint."""

    @abc.abstractmethod
    def read_rows(self, split: str) -> Sequence[Row] | None:
        """Reads the rows of a split, in file order.

        Args:
          split: `train`, `dev`, `test`, or one that only this task has.

        Returns:
          The rows, or None if the config names no such data.

        Raises:
          UserError: A file or record is wrong. The message names file, line and remedy.
        """

    @abc.abstractmethod
    def parse_row(self, row: Row) -> Row:
        """Checks a row of `--mode=predict`'s input, and returns one as `read_rows`
        does.

        Raises:
          ValueError: The row is wrong. The message says how.
        """

    @abc.abstractmethod
    def encode(self, rows: Sequence[Row], split: str) -> list[Feature]:
        """Turns rows into sequences. Those of a row are consecutive.

        Args:
          split: Split, for `text.notices`. `train` has labels, `predict` has none.
        """

    @abc.abstractmethod
    def row_losses(
        self, logits: Arrays, batch: Arrays
    ) -> Float[Array, "batch *tokens"]:
        """Returns the loss of each sequence, or of each of its tokens."""

    @abc.abstractmethod
    def format_answer(self, row: Row, answer: Any) -> Row:
        """Returns the fields that `--mode=predict` adds to a row."""

    @abc.abstractmethod
    def scores(self, rows: Sequence[Row], answers: Answers) -> dict[str, float]:
        """Returns the official scores, or none if the rows have no labels."""

    # Optional members, with defaults.

    def group_names(self, rows: Sequence[Row]) -> list[str]:
        """Returns the name of each row's group, which `task.dev_fraction` keeps
        together. It may not depend on the order of the rows.

        By default rows of equal texts are a group, whatever their case and white space.
        """
        return ["\0".join(overlap.normalized_texts(row)) for row in rows]

    @property
    def kind(self) -> str:
        """`classification`, `multilabel`, `regression` or, for starts and ends,
        `spans`: how a teacher's outputs are compared. Empty means as classes."""
        return ""

    @property
    def sequences(self) -> int:
        """Number of sequences of a row, whose `input_ids` are [sequences, length]. 1
        means [length]."""
        return 1

    @property
    def row_fields(self) -> tuple[str, ...]:
        """Fields of a row that `parse_row` takes. `text_b` may be missing."""
        return ("text", "text_b")

    @property
    def row_columns(self) -> ColumnSpec:
        """Columns of a table of rows. By number, it has no header."""
        return ANY

    def infer_fields(self) -> dict[str, Any]:
        """Returns values of open config fields, such as `task.labels`, that the
        training data decides.

        Raises:
          UserError: The data decides none that is possible.
        """
        return {}

    def number_labels(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Returns rows of `read_rows` with their labels in the form of `encode` and
        `scores`. The labels' names are known. By default they stay as they are."""
        return rows

    def row_weights(self, batch: Arrays) -> Float[Array, "batch *tokens"]:
        """Returns the weight of each of `row_losses` in their mean, 0 for padding
        rows."""
        return batch["row_weights"]

    def decode_answers(
        self, rows: Sequence[Row], features: Sequence[Feature], outputs: Answers
    ) -> list[Any]:
        """Returns the answer to each row, from the outputs of its sequences.

        By default a row is one sequence, and its `logits` are the answer.

        Args:
          outputs: Logits of each sequence by name, padded to some length.
        """
        return [output["logits"] for output in outputs]

    def fit(self, rows: Sequence[Row], answers: Answers | None) -> dict[str, Any]:
        """Returns values that a run learns in addition to its weights, as JSON.

        Args:
          rows: The training rows, or those of the first dev split.
          answers: Answers to dev's rows. None means training rows.
        """
        return {}

    def baseline_scores(self, rows: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of a trivial answer to rows with labels, or none if they
        would mean little."""
        return {}

    def score_details(self, rows: Sequence[Row], answers: Answers) -> str:
        """Formats the text that the closing report prints below a split's table."""
        return ""

    def prediction_files(
        self, split: str, rows: Sequence[Row], answers: Answers
    ) -> dict[str, str]:
        """Returns the content of a split's prediction files, by name.

        By default it is `SPLIT.jsonl`: each row's `index` (from 0), `format_answer`
        and, if the row has a `label`, `gold`.
        """
        lines = []
        for row, answer in zip(rows, answers, strict=True):
            gold = {} if row.get("label") is None else {"gold": row["label"]}
            lines.append({**self.format_answer(row, answer), **gold})
        return {f"{split}.jsonl": numbered_lines(lines)}


def numbered_lines(rows: Iterable[Row]) -> str:
    """Formats rows as JSON lines, each with its `index`, from 0."""
    return json_lines({"index": index, **row} for index, row in enumerate(rows))
