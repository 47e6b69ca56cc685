"""Sources seen more or less often than others, by `config.corpus.weights`.

A pass over the mix takes `weight` times the rows of each source, rounded to a whole row
(at least one), all reshuffled. Over the passes each source's rows come equally often;
within one, with a weight above 1, a row may come twice before another comes. The next
pass over the mix goes on where the last one ended. So a weight of 2 is exactly two
epochs a pass and 0.5 half of one, and which record a place in the training order has
follows from (weights, seed, place) alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import grain
import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from bert_jax.data.records import source_counts
from bert_jax.data.rows import EPOCHS


class Mix:
    """The order of training rows from several sources.

    Attributes:
      size: rows of a pass.
      epochs: epochs of each source in a pass.
    """

    def __init__(self, rows: Sequence[int], weights: Sequence[float], seed: int):
        """Rows and weight of each source; a source's records follow the last one's.

        Args:
          rows: of each source; a source without any takes no part.
        """
        self._rows = np.array(rows)
        wanted = np.maximum(1, np.rint(self._rows * np.array(weights)))
        self._parts = np.where(self._rows > 0, wanted, 0).astype(int)
        self._ends = np.cumsum(self._parts)
        self.size = int(self._ends[-1])
        self.epochs = self._parts / np.maximum(1, self._rows)
        self._first = np.cumsum(self._rows) - self._rows
        # Seeds of their own: equal ones could undo the shuffling of the mix.
        self._streams = [
            grain.MapDataset.range(max(1, count))
            .seed((seed + 1 + number) % 2**32)
            .shuffle()
            .repeat(EPOCHS)
            for number, count in enumerate(rows)
        ]

    def records(
        self, place: Int[np.ndarray, "batch"], turn: Int[np.ndarray, "batch"]
    ) -> tuple[Int[np.ndarray, "batch"], Int[np.ndarray, "batch"]]:
        """The record at each place of a pass, and its source's epoch.

        Args:
          place: below `size`.
          turn: the number of the pass.
        """
        source = np.searchsorted(self._ends, place, "right")
        inside = place - (self._ends - self._parts)[source]
        position = turn * self._parts[source] + inside
        drawn = [
            int(self._streams[one][at])
            for one, at in zip(source.tolist(), position.tolist(), strict=True)
        ]
        record = self._first[source] + np.array(drawn, int)
        return record, position // self._rows[source]


def of(config: ConfigDict, report: Mapping[str, Any]) -> Mix:
    """The mix of a prepared folder.

    Args:
      report: its preparation.json.
    """
    weights = tuple(map(float, config.corpus.weights))
    return Mix(source_counts(report, "pairs"), weights, config.seed)


def notes(config: ConfigDict, report: Mapping[str, Any], rows: int) -> list[str]:
    """Returns a line for each source: how much it has, and how often it is seen.

    Args:
      config: the whole config.
      report: preparation.json.
      rows: that the run takes in all.
    """
    mix = of(config, report)
    lines = []
    for source, documents, pairs, weight, passes in zip(
        config.corpus.sources,
        source_counts(report, "documents"),
        source_counts(report, "pairs"),
        config.corpus.weights,
        mix.epochs * rows / mix.size,
        strict=True,
    ):
        lines.append(
            f"{source}: {documents:,} documents, {pairs:,} rows, weight {weight:g}: "
            f"{passes:.2f} epochs in {rows:,} rows of training"
        )
        if not pairs:
            lines.append(
                f"warning: {source} is not trained on: no row of it is in train (dev "
                "may hold all its documents); give it more, or leave it out"
            )
    return lines
