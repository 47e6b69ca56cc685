"""Packing of several texts into one row, so that few positions are padding.

Pre-training: which pairs share a row follows from the prepared records alone, and is
stored next to them: longest-pack-first over the histogram of lengths (Krell et al.
2021, arXiv:2107.02027, section 3.1). Fine-tuning: see `PackedRows`.
"""

import functools
import io
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int32

from bert_jax.data.rows import (
    PADDING_LABEL,
    Batch,
    Feature,
    RowIndex,
    Rows,
    padded_length,
    scale_rows,
)
from bert_jax.data.table import Table
from bert_jax.runtime import storage

# Maximum number of pairs in a row, by default (`corpus.packed_pairs`). At length 512
# three fill 97.6% of the positions on Wikipedia and 91.9% on film reviews, four 98.6%
# and 96.1%, eight 99.8% and 99.3%. At 128 two are enough. Each costs one next sentence
# head a row, and room for half a prediction. With short texts more are needed: four of
# SST-2's sentences fill 74% of rows of 64 and 44% of rows of 128, sixteen 99.7% and
# 94%.
PAIRS = 4

_NONE = -1  # in a row of the plan: no pair
# Columns that belong to a shared row, not to each of its texts.
_TOKENS = ("input_ids", "input_mask", "segment_ids", "sequence_ids", "position_ids")
_PLACES = "cls_positions"


def packed_rows(
    folder: storage.Path, table: Table, limit: int, pairs: int = PAIRS
) -> Int32[np.ndarray, "rows pairs"]:
    """Returns the training pairs of each packed row, -1 where there is none.

    Reads them from the folder. If they are missing, first computes and stores them
    there, and prints how full the rows are.

    Args:
      folder: Folder of prepared sentence pairs.
      table: The training pairs.
      limit: Tokens of a row, the pairs' `max_seq_length`.
      pairs: Maximum number of pairs in a row.
    """
    path = folder / f"packed-{pairs}.npy"
    if not path.exists():
        sizes = table["tokens"].sizes()
        # [CLS] A [SEP], or [CLS] A [SEP] B [SEP].
        tokens = sizes + 2 + (sizes > table["size_a"].values)
        packed, file = plan_rows(tokens, limit, pairs), io.BytesIO()
        np.save(file, packed)
        storage.write_atomically(path, file.getvalue())
        share, before = (tokens.sum() / (n * limit) for n in (len(packed), len(tokens)))
        print(
            f"packed {len(tokens):,} pairs into {len(packed):,} rows of {limit}: "
            f"{len(tokens) / len(packed):.2f} pairs a row, {share:.1%} of the "
            f"positions are tokens ({before:.1%} without packing)",
            file=sys.stderr,
        )
    if storage.in_bucket(path):
        return np.load(io.BytesIO(path.read_bytes()))
    return np.load(path, mmap_mode="r")  # each process needs a part only


def plan_rows(
    lengths: Int[np.ndarray, " records"], limit: int, pairs: int = PAIRS
) -> Int32[np.ndarray, "rows pairs"]:
    """Distributes records over rows of at most `limit` tokens and `pairs` records.

    Args:
      lengths: Tokens of each record, special tokens included.

    Returns:
      Record indices, each record once, longest first, -1 where there is none.
    """
    counts = np.bincount(lengths, minlength=limit + 1)
    # Records of one length are interchangeable. Neighbors come from one document, so
    # they are scattered (by Knuth's multiplicative hash) to share no row.
    scattered = np.arange(len(lengths), dtype=np.uint64) * 2654435761 % 2**32
    by_length = np.lexsort((scattered, lengths))
    taken = np.cumsum(counts) - counts  # where a length's next record is in by_length
    patterns = _patterns(counts.tolist(), limit, pairs)
    packed = np.full((sum(patterns.values()), pairs), _NONE, np.int32)
    first = 0
    for pattern, count in patterns.items():
        for column, length in enumerate(pattern):
            start = taken[length]
            packed[first : first + count, column] = by_length[start : start + count]
            taken[length] += count
        first += count
    return packed


@functools.cache
def max_predictions(
    limit: int, share: float, max_per_pair: int, pairs: int = PAIRS
) -> int:
    """Returns the maximum number of masked tokens that a packed row can have.

    Args:
      limit: Tokens of a row.
      share: `masking.masked_lm_prob`.
      max_per_pair: `max_predictions_per_seq`, of each pair.
      pairs: Maximum number of pairs in a row.
    """
    # As `masking.mask_pairs` computes each pair's number, by its length.
    budgets = np.minimum(
        max_per_pair, np.maximum(1, np.rint(np.arange(limit + 1) * share))
    )
    budgets[0] = 0  # no pair
    best = budgets.astype(int)  # by the tokens that the pairs so far may have
    for _ in range(pairs - 1):
        best = np.array(
            [(best[: room + 1] + budgets[room::-1]).max() for room in range(limit + 1)]
        )
    return int(best[limit])


def pack_pairs(
    pairs: Batch, filled: Bool[np.ndarray, "batch pairs"], columns: int, pad: int
) -> Batch:
    """Moves masked pairs into shared rows.

    Args:
      pairs: A batch of `loader.batch_dataset` without packing, one pair a row, in the
        order of `filled`.
      filled: For each packed row, which of its slots have a pair.
      columns: Masked tokens of a packed row, from `max_predictions`, or 0 without
        masks.
      pad: Id of [PAD].

    Returns:
      The same columns, [batch, length] and [batch, columns], with `sequence_ids`
      [batch, length] (1, 2, ... for the row's pairs, 0 for padding), `position_ids`
      [batch, length], from 0 in each pair, and `cls_positions` and
      `next_sentence_labels` [batch, pairs], 0 and -1 where there is no pair.
    """
    packed = share_rows(pairs, filled, pad)
    if "masked_lm_ids" in pairs:  # one pair's after another's
        names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        pair, column = np.nonzero(pairs["masked_lm_weights"])
        row = np.nonzero(filled)[0][pair]
        target = row, np.arange(len(row)) - np.searchsorted(row, row)
        for name in names:
            packed[name] = np.zeros((len(filled), columns), pairs[name].dtype)
            packed[name][target] = pairs[name][pair, column]
        starts = packed["cls_positions"][filled]
        packed["masked_lm_positions"][target] += starts[pair]
    labels = np.full(filled.shape, PADDING_LABEL, np.int32)
    labels[filled] = pairs["next_sentence_labels"]
    packed["next_sentence_labels"] = labels
    return packed


def share_rows(
    sequences: Batch, filled: Bool[np.ndarray, "batch places"], pad: int
) -> Batch:
    """Moves sequences into shared rows.

    Args:
      sequences: `input_ids`, `input_mask` and `segment_ids`, [sequences, length], in
        the order of `filled`. The sequences of a row have `length` tokens or fewer.
      filled: For each shared row, which of its slots have a sequence.
      pad: Id of [PAD].

    Returns:
      The same columns, `sequence_ids` and `position_ids`, [batch, length], and
      `cls_positions` [batch, slots], as `pack_pairs` has them.
    """
    row, place = np.nonzero(filled)
    lengths = np.zeros(filled.shape, np.int32)
    size = (len(filled), sequences["input_ids"].shape[1])
    ends = sequences["input_mask"] * np.arange(1, size[1] + 1)
    lengths[filled] = ends.max(axis=1)  # a mask may have holes
    firsts = np.where(filled, np.cumsum(lengths, axis=1) - lengths, 0)
    starts = firsts[filled]
    packed = {name: np.zeros(size, np.int32) for name in _TOKENS}
    packed["input_ids"][:] = pad
    sequence, position = np.nonzero(sequences["input_mask"])
    target = row[sequence], starts[sequence] + position
    for name in ("input_ids", "input_mask", "segment_ids"):
        packed[name][target] = sequences[name][sequence, position]
    packed["sequence_ids"][target] = place[sequence] + 1
    packed["position_ids"][target] = position
    return packed | {_PLACES: firsts.astype(np.int32)}


def _patterns(counts: list[int], limit: int, pairs: int) -> dict[tuple[int, ...], int]:
    """Returns how many rows of at most `pairs` have which lengths.

    `counts` has the number of pairs of each length.

    From the longest pair to the shortest, each goes to the fullest row that it fits.
    """
    # The rows that can take more, as (pattern, count), by the room that is left.
    open_rows: dict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    full: dict[tuple[int, ...], int] = defaultdict(int)
    for length in range(limit, 0, -1):
        left = counts[length]
        while left:
            fits = (room for room in range(length, limit) if open_rows[room])
            room = next(fits, limit)  # or new rows
            pattern, count = open_rows[room].pop() if room < limit else ((), left)
            # The first row is then the fullest, so it takes the next pair too.
            copies = min(left, pairs - len(pattern), room // length)
            taken = min(count, left // copies)
            left -= taken * copies
            if count > taken and pattern:
                open_rows[room].append((pattern, count - taken))
            pattern += (length,) * copies
            if len(pattern) == pairs:
                full[pattern] += taken
            else:
                open_rows[room - length * copies].append((pattern, taken))
    for group in open_rows.values():
        for pattern, count in group:
            full[pattern] += count
    return full


class PackedRows(Rows):
    """Rows of which several share a row of a training batch.

    Evaluation's batches have a text a row: sorted by length they need little padding.

    Args:
      texts: Number of texts in each row of a training batch.
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
        """Returns these rows, scaled, of the batch's shared rows.

        Returns:
          `input_ids`, `input_mask`, `segment_ids`, `sequence_ids` and `position_ids`
          [batch / texts, length], and `cls_positions`, `row_weights` and other columns
          [batch / texts, texts].
        """
        lengths = self.lengths[indices]
        groups = group_texts(lengths, self._texts)
        longest = int(lengths[groups].sum(axis=1).max())
        max_tokens = limit * self._texts
        length = max_tokens if to_limit else padded_length(longest, max_tokens)
        shared = indices[groups[scale_rows(rows, len(indices), len(groups))]]
        alone = self.batch(shared.ravel(), length)
        filled = np.ones(shared.shape, bool)
        packed = share_rows(alone, filled, self._fill.get("input_ids", 0))
        for name in alone.keys() - packed.keys():
            packed[name] = alone[name].reshape(*shared.shape, *alone[name].shape[1:])
        return packed


def packed_shapes(tokens: tuple[int, ...], texts: int) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the longest batch.

    Args:
      tokens: Shape [batch, length] of a batch with a text a row.
    """
    rows, length = tokens[0] // texts, tokens[1] * texts
    names = (_PLACES, "label", "row_weights")
    by_column: dict[str, tuple[int, ...]] = dict.fromkeys(_TOKENS, (rows, length))
    return by_column | dict.fromkeys(names, (rows, texts))


def unpack_texts(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the columns of texts, as if each had a row: [rows x texts, ...].

    Columns of whole rows are left out. Batches without shared rows stay as they are.
    """
    if _PLACES not in batch:
        return batch
    columns = {name: x for name, x in batch.items() if name not in (*_TOKENS, _PLACES)}
    return {name: x.reshape(-1, *x.shape[2:]) for name, x in columns.items()}


def group_texts(
    lengths: Int[np.ndarray, " texts"], each: int
) -> Int[np.ndarray, "rows each"]:
    """Forms groups of `each` texts with about the same number of tokens in all.

    From the longest texts to the shortest, a text for each group at a time: the longest
    of them goes to the group with the fewest tokens.

    Args:
      lengths: Tokens of each text. `each` divides the number of texts.

    Returns:
      Indices of the texts, each once, with the longest ones first.
    """
    order = np.argsort(-lengths, kind="stable").reshape(each, -1)
    groups = np.zeros((order.shape[1], each), int)
    tokens = np.zeros(order.shape[1], int)
    for place, texts in enumerate(order):
        emptiest = np.argsort(tokens, kind="stable")
        groups[emptiest, place] = texts
        tokens[emptiest] += lengths[texts]
    return groups
