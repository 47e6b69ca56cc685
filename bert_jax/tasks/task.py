"""What the loop, the evaluation and prediction ask of a task."""

import abc
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Array, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.rows import Batch, RowIndex
from bert_jax.models.config import BertConfig, encoder_flops
from bert_jax.runtime.storage import Path
from bert_jax.tasks.results import Results
from bert_jax.types import Scalars

Outputs = dict[str, Any]
Step = Callable[[Any, Mapping[str, Array]], dict[str, Array]]
Ask = Callable[[Batch], Outputs]
Shapes = Mapping[str, tuple[int, ...]]


class Phase(NamedTuple):
    """Steps of the schedule in which batches have one shape."""

    first_step: int
    end_step: int
    micro_batches: int  # the parts that a batch is worked through in
    shapes: Shapes  # of a whole batch, as `Task.flops` takes them

    @property
    def steps(self) -> int:
        """Their number."""
        return self.end_step - self.first_step

    @property
    def batch_size(self) -> int:
        """Rows of a whole batch."""
        return self.shapes["input_ids"][0]


class Predictor(abc.ABC):
    """Answers rows, one at a time or many."""

    @abc.abstractmethod
    def parse(self, row: dict[str, Any]) -> Any:
        """A row of the input; raises ValueError saying what is wrong with it."""

    @abc.abstractmethod
    def step(self, params: Any, batch: Mapping[str, Array]) -> dict[str, Array]:
        """What is computed on the device."""

    @abc.abstractmethod
    def answer(
        self, parsed: Sequence[Any], ask: Ask, size: int
    ) -> list[dict[str, Any]]:
        """What is added to each row; `ask` runs `step` on up to `size` rows."""


@dataclasses.dataclass(frozen=True)
class Data:
    """What a run knows of its training data.

    Attributes:
      unknown_share: of the pieces (of the first thousand rows, or all), that of [UNK].
      epoch_size: rows; 0 where they are not counted in epochs.
      record: what tells them from other data, for `Task.recall`; JSON.
      folders: that they are kept in.
    """

    unknown_share: float
    epoch_size: int = 0
    record: dict[str, Any] = dataclasses.field(default_factory=dict)
    folders: tuple[str, ...] = ()


class Task(abc.ABC):
    """Data, model, losses and scores of a run.

    The abstract members are what a task must say; the others have a default.

    Attributes:
      config: the whole config; `resolve` fills in what it leaves open.
      model_config: the model's sizes.
      main_score: of the first dev split's scores, the one that counts.
      facts: what a run learns besides its weights, such as a threshold; JSON, kept in
        the work directory's task.json.
      notices: how many records of which split were cut, or otherwise not taken as they
        are; printed at the start.
    """

    model_config: BertConfig
    main_score: str

    def __init__(self, config: ConfigDict):
        self.config = config
        self.facts: dict[str, Any] = {}
        self.notices: Counter[str] = Counter()

    @property
    @abc.abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""

    @property
    @abc.abstractmethod
    def splits(self) -> tuple[str, ...]:
        """What is evaluated; the first of dev is what a run chooses by."""

    @abc.abstractmethod
    def training_data(self) -> Data:
        """Prepares or reads the training data, once."""

    @abc.abstractmethod
    def phases(self) -> list[Phase]:
        """The schedule: one phase or some, one after the other from step 0."""

    @abc.abstractmethod
    def init_params(self, key: Key[Array, ""]) -> dict:
        """Initial parameters, boxed with their logical axis names."""

    @abc.abstractmethod
    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        """The training batches from `step` on; of each, these rows of
        `config.train.batch_size`, or the same share where a batch is of another size.
        """

    @abc.abstractmethod
    def loss(
        self, params: Any, batch: Mapping[str, Array], key: Key[Array, ""] | None
    ) -> Scalars:
        """The named losses of a batch, summed over its rows; the key is dropout's."""

    @abc.abstractmethod
    def loss_weights(self, batch: Mapping[str, Array]) -> Scalars:
        """Of each named loss what it is divided by, which the batch alone tells."""

    @abc.abstractmethod
    def evaluation_batches(
        self, split: str, step: int, rows: RowIndex
    ) -> Iterator[Batch]:
        """The batches of a split, every record once, as after `step` steps."""

    @abc.abstractmethod
    def outputs(self, params: Any, batch: Mapping[str, Array]) -> Any:
        """What evaluation computes on the device for a batch."""

    @abc.abstractmethod
    def results(
        self, split: str, fetched: Sequence[Any], *, learns: bool = False
    ) -> Results:
        """What the outputs of all of a split's batches come to.

        Args:
          learns: `facts` are set by them first, where the task has any.
        """

    @abc.abstractmethod
    def predictor(self, missing: Collection[str] = ()) -> Predictor:
        """What `--mode=predict` asks.

        Args:
          missing: those of `unused(predicts=True)` that the weights do not have.
        """

    # What a task may say besides.

    @property
    def padding(self) -> Mapping[str, int]:
        """What a batch's columns are padded with, where that is not 0."""
        return {}

    def resolve(self) -> None:
        """Fills in what the config leaves to be found in the data."""
        self.config.model.vocab_size = self.model_config.vocab_size

    def recall(self, record: Mapping[str, Any]) -> None:
        """Takes `Data.record` of the run that goes on, before any data."""
        del record

    def unused(self, *, predicts: bool = False) -> tuple[str, ...]:
        """Parts of the model, as `bert/pooler`, that its scores do not depend on.

        Args:
          predicts: those without which `predictor` has answers still.
        """
        del predicts
        return ()

    def flops(self, shapes: Shapes) -> int:
        """Model FLOPs of a training step on a batch of these shapes: the encoder's."""
        *rows, length = shapes["input_ids"]
        return math.prod(rows) * encoder_flops(self.model_config, length)

    def quality(self, scores: Mapping[str, int | float]) -> float:
        """What the best checkpoint has most of; a score that is none is the worst."""
        value = scores[self.main_score]
        return -math.inf if math.isnan(value) else value

    def show(self, folder: Path, run: Callable[[Step], Ask]) -> None:
        """Prints a few of the model's answers and keeps them; by default nothing.

        Args:
          folder: of the prediction files.
          run: compiles a function of (params, batch) and gives one of a few rows.
        """
        del folder, run

    # What follows from these.

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """The splits that a run may choose by: those whose name begins with dev."""
        return tuple(split for split in self.splits if split.startswith("dev"))

    def phase_at(self, step: int) -> Phase:
        """The phase whose batch `step` takes (the last one, from its first step on)."""
        *earlier, last = self.phases()
        return next((phase for phase in earlier if step < phase.end_step), last)
