"""What experiments.compare sets side by side."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.paper.verdicts import interval


class Run(NamedTuple):
    """A run: its fields, and its lines of one split."""

    folder: Path
    fields: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]


class Group(NamedTuple):
    """Runs that differ by their seed alone.

    Attributes:
      name: the fields in which the groups differ, FIELD=VALUE.
      scores: of each run, in the order of `runs`.
    """

    name: str
    runs: Sequence[Run]
    scores: Sequence[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def reach(self) -> float:
        """Half of the interval's width; infinite for one run."""
        low, high = interval(self.scores)
        return (high - low) / 2
