"""The phases of pre-training: parts of the schedule with one batch shape."""

from typing import NamedTuple

from ml_collections import ConfigDict


class PhaseFields(NamedTuple):
    """A part of the schedule in which all batches have one shape."""

    first_step: int
    end_step: int
    batch_size: int
    max_seq_length: int
    max_predictions_per_seq: int
    micro_batches: int


def phases(config: ConfigDict) -> list[PhaseFields]:
    """The schedule's one or two phases (appendix A.2)."""
    corpus, train, second = config.corpus, config.train, config.phase2
    change = phase2_start(config)
    first = PhaseFields(
        0,
        change,
        train.batch_size,
        corpus.max_seq_length,
        config.masking.max_predictions_per_seq,
        train.micro_batches,
    )
    if change == train.num_steps:
        return [first]
    last = PhaseFields(
        change,
        train.num_steps,
        second.batch_size or train.batch_size,
        second.max_seq_length,
        second.max_predictions_per_seq,
        second.micro_batches,
    )
    return [first, last]


def phase_at(config: ConfigDict, step: int) -> PhaseFields:
    """The phase that `step` belongs to; after the last step, the last phase."""
    *earlier, last = phases(config)
    return next((p for p in earlier if step < p.end_step), last)


def phase2_start(config: ConfigDict) -> int:
    """The first step of phase 2; `config.train.num_steps` if there is one phase."""
    num_steps = config.train.num_steps
    return num_steps - round(num_steps * config.phase2.fraction)
