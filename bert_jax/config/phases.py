"""The phases of a run: parts of the schedule with one batch shape."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict


class Phase(NamedTuple):
    """A part of the schedule in which all batches have one shape.

    Attributes:
      batch_size: Rows of a whole batch.
      micro_batches: Number of parts that a batch is split into.
      shapes: Shapes of a whole batch, by column, in a task's phases (`Task.phases`),
        else ().
    """

    first_step: int
    end_step: int
    batch_size: int
    max_seq_length: int
    max_predictions_per_seq: int
    micro_batches: int
    shapes: Any = ()

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.end_step - self.first_step


def phases_of(config: ConfigDict) -> list[Phase]:
    """Returns the schedule's one or two phases (appendix A.2)."""
    train, second, change = config.train, config.phase2, phase2_start(config)
    length = config.corpus.max_seq_length
    predictions = config.masking.max_predictions_per_seq
    shape = (train.batch_size, length, predictions, train.micro_batches)
    first = Phase(0, change, *shape)
    if change == train.num_steps:
        return [first]
    rows, length = second.batch_size or train.batch_size, second.max_seq_length
    predictions = second.max_predictions_per_seq
    shape = (rows, length, predictions, second.micro_batches)
    return [first, Phase(change, train.num_steps, *shape)]


def find_phase(schedule: Sequence[Phase], step: int) -> Phase:
    """Returns the phase that `step` belongs to (the last phase after the last step)."""
    *earlier, last = schedule
    return next((p for p in earlier if step < p.end_step), last)


def phase2_start(config: ConfigDict) -> int:
    """Returns phase 2's first step, or `config.train.num_steps` without a phase 2."""
    num_steps = config.train.num_steps
    return num_steps - round(num_steps * config.phase2.fraction)
