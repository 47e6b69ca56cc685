"""Training batches of fine-tuning whose rows hold several texts each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from bert_jax.data.packing import pairs as packing
from bert_jax.data.rows import Batch, Feature, RowIndex, Rows, padded_length, scaled

_SAMPLE = 500  # batches that tell how long the others will be
# Columns that are of a row, and not of each of its texts.
_TOKENS = ("input_ids", "input_mask", "segment_ids", "sequence_ids", "position_ids")
_PLACES = "cls_positions"


class PackedRows(Rows):
    """Rows that share those of training batches. Evaluation's batches have a text a
    row: sorted by length they need little padding.

    Args:
      texts: of each row of a training batch.
    """

    def __init__(
        self, features: Sequence[Feature], fill: Mapping[str, int], texts: int
    ):
        super().__init__(features, fill)
        self._texts = texts

    def training_batch(
        self,
        indices: Int[np.ndarray, "batch"],
        rows: RowIndex,
        limit: int,
        to_limit: bool,
    ) -> Batch:
        """These rows, scaled, of the batch's shared rows.

        Returns:
          `input_ids`, `input_mask`, `segment_ids`, `sequence_ids` and `position_ids`
          [batch / texts, length]; `cls_positions`, `row_weights` and other columns
          [batch / texts, texts].
        """
        lengths = self.lengths[indices]
        groups = grouped(lengths, self._texts)
        length = limit * self._texts if to_limit else row_length(lengths, groups, limit)
        shared = indices[groups[scaled(rows, len(indices), len(groups))]]
        alone = self.batch(shared.ravel(), length)
        filled = np.ones(shared.shape, bool)
        packed = packing.share_rows(alone, filled, self._fill.get("input_ids", 0))
        for name in alone.keys() - packed.keys():
            packed[name] = alone[name].reshape(*shared.shape, *alone[name].shape[1:])
        return packed

    def expected_lengths(
        self, size: int, steps: int, *, limit: int, to_limit: bool = False
    ) -> int:
        """As that of Rows, from a sample of batches."""
        random = np.random.default_rng(0)
        counts: Counter[int] = Counter()
        for _ in range(_SAMPLE):
            lengths = random.choice(self.lengths, size)
            counts[row_length(lengths, grouped(lengths, self._texts), limit)] += 1
        expected = (steps * count / _SAMPLE for count in counts.values())
        return 1 if to_limit else max(1, sum(number >= 1 for number in expected))


def shapes(tokens: tuple[int, ...], texts: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the longest batch.

    Args:
      tokens: [batch, length], of a batch with a text a row.
    """
    rows, length = tokens[0] // texts, tokens[1] * texts
    names = (_PLACES, "label", "row_weights")
    by_column: dict[str, tuple[int, ...]] = dict.fromkeys(_TOKENS, (rows, length))
    return by_column | dict.fromkeys(names, (rows, texts))


def by_text(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """What belongs to the texts of shared rows, as if each had a row: [rows x texts,
    ...]; columns of whole rows are left out. Other batches stay as they are."""
    if _PLACES not in batch:
        return batch
    columns = {name: x for name, x in batch.items() if name not in (*_TOKENS, _PLACES)}
    return {name: x.reshape(-1, *x.shape[2:]) for name, x in columns.items()}


def grouped(
    lengths: Int[np.ndarray, " texts"], each: int
) -> Int[np.ndarray, "rows each"]:
    """Groups of `each` texts with about the same number of tokens in all.

    From the longest texts to the shortest, a text for each group at a time: the longest
    of them goes to the group with the fewest tokens.

    Args:
      lengths: tokens of each text; `each` divides their number.

    Returns:
      Indices of the texts, each once; those of the longest ones first.
    """
    order = np.argsort(-lengths, kind="stable").reshape(each, -1)
    groups = np.zeros((order.shape[1], each), int)
    tokens = np.zeros(order.shape[1], int)
    for place, texts in enumerate(order):
        emptiest = np.argsort(tokens, kind="stable")
        groups[emptiest, place] = texts
        tokens[emptiest] += lengths[texts]
    return groups


def row_length(
    lengths: Int[np.ndarray, " texts"],
    groups: Int[np.ndarray, "rows each"],
    limit: int,
) -> int:
    """The length to pad shared rows to.

    Args:
      lengths: tokens of each text.
      limit: tokens of a text.
    """
    longest = int(lengths[groups].sum(axis=1).max())
    return padded_length(longest, limit * groups.shape[1])
