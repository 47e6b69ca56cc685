"""The interface of a task for training, evaluation and prediction."""

import abc
import copy
import dataclasses
import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

from jaxtyping import Array, Key
from ml_collections import ConfigDict, FrozenConfigDict
from tokenizers import Tokenizer

from bert_jax.config import fields
from bert_jax.config.phases import Phase, find_phase
from bert_jax.data.rows import Batch, Feature, RowIndex, Rows
from bert_jax.data.tables import ANY, ColumnSpec, Row
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig, encoder_flops
from bert_jax.models.initial import InitialParams
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.types import Arrays, DropoutKey, Scalars

Outputs = dict[str, Any]
ApplyFn = Callable[[Any, Arrays], dict[str, Array]]
Shapes = Mapping[str, tuple[int, ...]]
Table = tuple[list[tuple], tuple]  # rows and header


def require_finite(outputs: Outputs) -> Outputs:
    """Returns the same outputs.

    Raises:
      UserError: they have NaN or infinity.
    """
    if not all((array < math.inf).all() for array in outputs.values()):  # nor is NaN
        raise UserError(
            "the model computes NaN or infinity: its weights have too large "
            "numbers; take other weights, or train it with a lower learning rate"
        )
    return outputs


def require_text(row: Row, name: str) -> str:
    """Returns a field of a row of `predict`. Raises ValueError if it is no string."""
    text = row.get(name)
    if not isinstance(text, str):
        raise ValueError(f'"{name}" is required, a string')
    return text


def require_words(row: Row) -> list[str]:
    """Returns `words` of a row of `predict`. Raises ValueError if they are no words."""
    words = row["words"]
    if not isinstance(words, list) or not all(
        isinstance(word, str) and word for word in words
    ):
        raise ValueError('"words" must be a list of strings, none of them empty')
    return words


class Predictor:
    """Conversion of rows to sequences, and of a model's outputs to answers.

    By default a parsed row is a sequence, and its outputs are its answer. See
    `training.inference.Answerer`.

    Attributes:
      max_seq_length: Maximum number of tokens in a sequence.
      fitted: Values that decide answers in addition to the weights, see `Task`.
    """

    max_seq_length: int
    fitted: Mapping[str, Any] = MappingProxyType({})

    @property
    def row_fields(self) -> tuple[str, ...]:
        """Fields of a row. `text_b` may be missing."""
        return ("text", "text_b")

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes or tags that an answer may have, if there are any."""
        return ()

    def parse_row(self, row: dict[str, Any]) -> Any:
        """Parses a row of the input.

        Raises:
          ValueError: the row is wrong. The message says how.
        """
        raise NotImplementedError

    def encode(self, examples: Sequence[Any], split: str) -> list[Feature]:
        """Turns parsed rows into sequences. Those of a row are consecutive.

        Args:
          split: Split, for `Task.notices`. `train` has labels, `predict` has none.
        """
        return [each._replace(example=index) for index, each in enumerate(examples)]

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        """Stores sequences, to make batches of them."""
        return Rows(features, {})

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Computes a batch on the device."""
        raise NotImplementedError

    def decode(
        self,
        examples: Sequence[Any],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[dict[str, Any]]:
        """Returns the fields to add to each row.

        Args:
          outputs: Outputs of each sequence, padded to some length.
        """
        return [self.decode_one(*each) for each in zip(features, outputs, strict=True)]

    def decode_one(self, feature: Feature, output: Outputs) -> dict[str, Any]:
        """Returns the fields to add to the row of a sequence."""
        return output


AnswerFn = Callable[[Predictor, Sequence[Any]], list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Data:
    """Facts about a run's training data.

    Attributes:
      unknown_share: Fraction of [UNK] among the tokens.
      epoch_size: Number of rows, or 0 if the run does not count epochs.
      record: Identity of the data, for `Task.reuse_prepared_data`, as JSON. Its `facts`
        describe the data and are among `Task.fitted` when the run is queried.
      folders: Folders of the prepared data.
      report: Function that describes the content of a folder, in some lines. By default
        it returns only the folder's name.
    """

    unknown_share: float
    epoch_size: int = 0
    record: dict[str, Any] = dataclasses.field(default_factory=dict)
    folders: tuple[str, ...] = ()
    report: Callable[[Path], str] = str


def lower_is_better(score: str) -> bool:
    """Returns whether the smaller of two values of a score is better.

    Args:
      score: Name of the score, as reported.
    """
    # After a colon comes the name of a class, which may be "loss".
    return ":" not in score and score.endswith(("loss", "perplexity", "entropy"))


def score_table(
    split: str, scores: Mapping[str, float], baseline: Mapping[str, float]
) -> Table:
    """Tabulates scores next to a baseline's.

    Args:
      scores: Scores by name. `NAME:CLASS`, the score of one class, is left out.
    """
    rows: list[tuple] = []
    for name, value in scores.items():
        if ":" not in name:
            row = (name, f"{value:.4g}")
            trivial = f"{baseline[name]:.4g}" if name in baseline else ""
            rows.append((*row, trivial) if baseline else row)
    header = (split, "model", "majority baseline")
    return rows, header if baseline else header[:2]


def json_lines(rows: Iterable[Row]) -> str:
    """Formats rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of one seed. The closing report calls the functions.

    Attributes:
      scores: Scores by name. Empty if the records have no labels.
      fitted: The task's fitted values, with those learned from these outputs.
      baseline: Function that computes the scores of a trivial answer without a model.
      table: Function from the split, the scores (the means over seeds and, with several
        seeds, standard deviations) and the baseline's to rows and header.
      details: Function that formats the text printed below the table.
      files: Function that returns the content of the prediction files, by name.
    """

    scores: dict[str, float]
    fitted: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    baseline: Callable[[], Mapping[str, float]] = dict
    table: Callable[[str, Mapping[str, float], Mapping[str, float]], Table] = (
        score_table
    )
    details: Callable[[], str] = str
    files: Callable[[], Mapping[str, str]] = dict

    def write(self, folder: Path) -> None:
        """Writes the prediction files to a folder, each atomically."""
        for name, text in self.files().items():
            write_atomically(folder / name, text)


class Task(abc.ABC):
    """Data, model, losses and scores of a run.

    A task must define the abstract members.

    Attributes:
      config: The whole config. `resolve` fills in its open values.
      options: Every field of `config.task`, with the default where this task has none.
      model_config: The model's sizes.
      main_score: Name of the score on the first dev split that selects the best, unless
        `config.evaluate.score` names another one.
      fitted: Values that a run learns in addition to its weights, such as a threshold,
        as JSON, saved in the work directory's task.json. See `with_fitted`.
      notices: Counts of records that were cut, skipped or changed, by split and reason.
        They are printed at the start.
      compares_rows: Whether the loss compares the rows of a batch with each other. The
        step then calls `vectors` and `batch_loss`, not `loss`: with the vectors of the
        whole global batch, on any number of devices and micro-batches.
    """

    model_config: BertConfig
    main_score: str
    compares_rows: ClassVar[bool] = False

    config: FrozenConfigDict
    options: FrozenConfigDict

    def __init__(self, config: ConfigDict):
        self.config = fields.with_values(config, {})  # frozen, a copy
        self.options = fields.task_values(self.config)
        self.fitted: Mapping[str, Any] = {}
        self.notices: Counter[str] = Counter()

    def fill_in(self, values: Mapping[str, Any]) -> None:
        """Takes a config with these values, by `GROUP.NAME`."""
        self.config = fields.with_values(self.config, values)
        self.options = fields.task_values(self.config)

    def with_fitted(self, fitted: Mapping[str, Any]) -> Self:
        """Returns this task, over the same data, with these fitted values."""
        task = copy.copy(self)
        task.fitted = {**fitted}
        return task

    @property
    @abc.abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Vocabulary."""

    @property
    @abc.abstractmethod
    def splits(self) -> tuple[str, ...]:
        """Splits to evaluate. The first dev split selects the best checkpoint."""

    @abc.abstractmethod
    def training_data(self) -> Data:
        """Prepares or reads the training data, once."""

    @abc.abstractmethod
    def phases(self) -> list[Phase]:
        """Returns the schedule: phases with their shapes, in order, from step 0."""

    @abc.abstractmethod
    def init_params(self, key: Key[Array, ""]) -> dict:
        """Returns initial parameters, boxed with their logical axis names."""

    @functools.cached_property
    def initial_params(self) -> InitialParams:
        """The result of `init_params`, traced once for its shapes and its values."""
        return InitialParams(self.init_params)

    @property
    def param_shapes(self) -> Any:
        """Shapes and dtypes of `init_params`, boxed. Nothing is allocated."""
        return self.initial_params.shapes

    @abc.abstractmethod
    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        """Yields the training batches from `step` on, only these rows of each.

        `rows` indexes `config.train.batch_size` rows. Other sizes are scaled.
        """

    @abc.abstractmethod
    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        """Returns a batch's named losses, summed over rows. `key` is for dropout."""

    @abc.abstractmethod
    def loss_weights(self, batch: Arrays) -> Scalars:
        """Returns the divisor of each named loss, computed from the batch alone: like
        the losses a sum over its rows."""

    @abc.abstractmethod
    def evaluation_batches(
        self, split: str, step: int, rows: RowIndex
    ) -> Iterator[Batch]:
        """Yields the batches of a split after `step` steps, each record once."""

    @abc.abstractmethod
    def outputs(self, params: Any, batch: Arrays) -> Any:
        """Computes evaluation's outputs for a batch, on the device."""

    @abc.abstractmethod
    def results(
        self, split: str, fetched: Sequence[Any], *, learns: bool = False
    ) -> Results:
        """Computes scores and answers from the outputs of all of a split's batches.

        Args:
          learns: Whether to first fit values to these outputs, if the task has any.
        """

    @abc.abstractmethod
    def predictor(self, missing: Collection[str] = ()) -> Predictor:
        """Returns the predictor for `--mode=predict`.

        Args:
          missing: Parts of `unused_parameters(predicts=True)` that the weights lack.
        """

    # Optional members, with defaults.

    def vectors(self, params: Any, batch: Arrays, key: DropoutKey) -> Arrays:
        """Returns the arrays that `batch_loss` compares, [batch, ...], one per row.

        Args:
          batch: The batch or a part of it.
          key: PRNG key for dropout.
        """
        raise NotImplementedError

    def batch_loss(self, vectors: Arrays, batch: Arrays) -> Scalars:
        """Returns the named losses of a whole batch, each times its `loss_weights`.

        Args:
          vectors: Vectors of all its rows.
        """
        raise NotImplementedError

    @property
    def padding(self) -> Mapping[str, int]:
        """Padding value of each column, where it is not 0."""
        return {}

    @property
    def row_columns(self) -> ColumnSpec:
        """Columns of a table of rows. By number, it has no header."""
        return ANY

    def constants(self) -> dict[str, Any]:
        """Returns arrays that the loss reads and nobody trains, by default none.

        Their names join those of the parameters: a teacher's arrays, returned as
        `{"teacher": ...}`, are `params["teacher"]` in `loss` and `vectors`. `outputs`
        and `predictor` get none of them. A run reads them again when it resumes, and
        checkpoints leave them out.

        Returns:
          Trees of NumPy arrays by name. An array that is boxed with logical axis names
          is sharded like a parameter, as are values of another model's:
          `nn.meta.replace_boxed(model.init(...), values)`. Others are on every device.
        """
        return {}

    def resolve(self) -> None:
        """Fills in config values that depend on the data."""
        self.fill_in({"model.vocab_size": self.model_config.vocab_size})

    def reuse_prepared_data(self, record: Mapping[str, Any]) -> None:
        """Takes `Data.record` of the run being resumed, before reading any data."""
        del record

    def unused_parameters(self, *, predicts: bool = False) -> tuple[str, ...]:
        """Returns parts of the model, such as `bert/pooler`, that no score depends on.

        Args:
          predicts: Whether to return the parts that `predictor` does not need instead.
        """
        return ()

    def flops(self, shapes: Shapes) -> int:
        """Returns a training step's model FLOPs at these shapes: the encoder's."""
        *rows, length = shapes["input_ids"]
        return math.prod(rows) * encoder_flops(self.model_config, length)

    def selection_value(self, scores: Mapping[str, int | float]) -> float:
        """Returns the value that the best checkpoint maximizes: `selection_score`, or
        minus a loss. NaN counts as the worst.

        Raises:
          UserError: The score is not reported.
        """
        name = self.selection_score
        if name not in scores:
            reported = ", ".join(n for n in scores if n not in ("step", "time"))
            raise UserError(
                f"config.evaluate.score={name}: not reported on {self.dev_splits[0]}; "
                f"choose one of {reported or 'none: its rows have no labels'}"
            )
        value = -scores[name] if lower_is_better(name) else scores[name]
        return -math.inf if math.isnan(value) else value

    def show_examples(self, answer: AnswerFn) -> tuple[str, Sequence[Row]]:
        """Returns a text to print, and rows to save, with a few of the model's answers.
        By default there are none.

        Args:
          answer: Function that answers parsed rows of a predictor.
        """
        return "", ()

    # Derived members.

    @property
    def selection_score(self) -> str:
        """Name of the score that selects the best checkpoint and ends a run early."""
        return self.config.evaluate.score or self.main_score

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """Splits whose names start with dev."""
        return tuple(split for split in self.splits if split.startswith("dev"))

    def phase_at(self, step: int) -> Phase:
        """Returns the phase of `step`, or after the end the last phase."""
        return find_phase(self.phases(), step)
