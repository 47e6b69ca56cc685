"""Sources seen more or less often than others, by `config.corpus.weights`.

A pass over the mix takes `weight` times the rows of each source, rounded to a whole row
(at least one), all reshuffled. Over the passes each source's rows come equally often.
Within one pass, with a weight above 1, a row may come twice before another comes. The
next pass over the mix continues where the last one ended. So a weight of 2 is exactly
two epochs a pass and 0.5 half of one, and the record at a position in the training
order follows from (weights, seed, position) alone.
"""

from collections.abc import Sequence

import grain
import numpy as np
from jaxtyping import Int

from bert_jax.data.rows import EPOCHS


class SourceMixture:
    """The order of training rows from several sources.

    Attributes:
      size: Rows of a pass.
    """

    def __init__(self, rows: Sequence[int], weights: Sequence[float], seed: int):
        """Takes each source's rows and weight. Its records follow the last source's.

        Args:
          rows: Number of rows of each source. Sources without rows are skipped.
        """
        self._rows = np.array(rows)
        wanted = np.maximum(1, np.rint(self._rows * np.array(weights)))
        self._parts = np.where(self._rows > 0, wanted, 0).astype(int)
        self._ends = np.cumsum(self._parts)
        self.size = int(self._ends[-1])
        self._first = np.cumsum(self._rows) - self._rows
        # Each source has a separate seed: equal ones could undo the mix's shuffling.
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
        """Returns the record at each position of a pass, and its source's epoch.

        Args:
          place: Positions in the pass, below `size`.
          turn: Number of the pass.
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
