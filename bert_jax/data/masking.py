"""Draws masked LM targets for each (seed, epoch, record).

The rules are those of create_masked_lm_predictions in google-research/bert
(create_pretraining_data.py), applied to a whole batch at once.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from ml_collections import ConfigDict


class Draws(NamedTuple):
    """Uniform numbers in [0, 1) that decide a batch's masks."""

    order: Float[np.ndarray, "batch length"]  # which tokens or words come first
    action: Float[np.ndarray, "batch predictions"]  # [MASK], random or kept
    piece: Float[np.ndarray, "batch predictions"]  # which random piece


class Masked(NamedTuple):
    """A batch's masked inputs, and the targets."""

    input_ids: Int[np.ndarray, "batch length"]
    masked_lm_positions: Int[np.ndarray, "batch predictions"]
    masked_lm_ids: Int[np.ndarray, "batch predictions"]
    masked_lm_weights: Float[np.ndarray, "batch predictions"]


def draw(
    seed: int,
    epochs: Int[np.ndarray, "batch"],
    records: Int[np.ndarray, "batch"],
    length: int,
    predictions: int,
) -> Draws:
    """Draws each row's numbers from its own counter of one Philox stream, so that any
    record's mask can be recomputed alone."""
    key = np.array([seed, 0x6D61736B], np.uint64)  # "mask"
    rows = []
    for epoch, record in zip(epochs, records, strict=True):
        # The low words count the numbers drawn; the high words keep rows apart.
        counter = np.array([0, 0, epoch, record], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        rows.append(generator.random(length + 2 * predictions))
    numbers = np.stack(rows)
    order, action, piece = np.split(numbers, [length, length + predictions], axis=1)
    return Draws(order, action, piece)


def apply(
    input_ids: Int[np.ndarray, "batch length"],
    input_mask: Int[np.ndarray, "batch length"],
    candidates: Bool[np.ndarray, "batch length"],
    draws: Draws,
    masking: ConfigDict,
    mask_id: int,
    continuation: Bool[np.ndarray, "vocab"],
) -> Masked:
    """Chooses what to predict and writes [MASK] or a random piece there.

    Args:
      input_ids: pieces with [CLS], [SEP] and padding.
      input_mask: 1 for a token, special tokens included, 0 for padding.
      candidates: positions that may be predicted: no special tokens, no padding.
      draws: from `draw`; its `action` gives the number of columns of the result.
      masking: `config.masking`.
      mask_id: the id of [MASK].
      continuation: for each piece, whether it continues a word ("##...").

    Returns:
      Positions ascending, unused columns 0 with weight 0.
    """
    columns = draws.action.shape[1]
    # rint rounds half to even, like Python's round in Google's code.
    share = np.rint(input_mask.sum(axis=1) * masking.masked_lm_prob).astype(int)
    budget = np.minimum(columns, np.maximum(1, share))
    if masking.whole_word:
        starts = candidates & ~continuation[input_ids]
        # A sentence that was cut at the front may start inside a word.
        starts[:, 1:] |= candidates[:, 1:] & ~candidates[:, :-1]
        chosen = _choose_words(candidates, starts, draws.order, budget)
    else:
        ranks = _ranks(np.where(candidates, draws.order, np.inf))
        chosen = candidates & (ranks < budget[:, None])

    # There may be more columns than positions in a row.
    missing = ((0, 0), (0, max(0, columns - input_ids.shape[1])))
    chosen, originals = np.pad(chosen, missing), np.pad(input_ids, missing)
    positions = np.argsort(~chosen, axis=1, kind="stable")[:, :columns]
    real = np.take_along_axis(chosen, positions, axis=1)
    targets = np.take_along_axis(originals, positions, axis=1)
    random_pieces = (draws.piece * continuation.size).astype(input_ids.dtype)
    masked = draws.action < masking.mask_fraction
    random = ~masked & (draws.action < masking.mask_fraction + masking.random_fraction)
    replaced = np.where(masked, mask_id, np.where(random, random_pieces, targets))
    ids = input_ids.copy()
    rows = np.broadcast_to(np.arange(len(ids))[:, None], positions.shape)
    ids[rows[real], positions[real]] = replaced[real]
    return Masked(
        input_ids=ids,
        masked_lm_positions=np.where(real, positions, 0).astype(np.int32),
        masked_lm_ids=np.where(real, targets, 0).astype(np.int32),
        masked_lm_weights=real.astype(np.float32),
    )


def _ranks(values: Float[np.ndarray, "batch n"]) -> Int[np.ndarray, "batch n"]:
    """Each value's rank in its row, ascending from 0."""
    order = np.argsort(values, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(values.shape[1])[None, :], axis=1)
    return ranks


def _choose_words(
    candidates: Bool[np.ndarray, "batch length"],
    starts: Bool[np.ndarray, "batch length"],
    order: Float[np.ndarray, "batch length"],
    budget: Int[np.ndarray, "batch"],
) -> Bool[np.ndarray, "batch length"]:
    """Takes words in random order; skips words that would exceed the budget."""
    rows = np.arange(len(candidates))
    word_of = np.cumsum(starts, axis=1) - 1  # of each candidate
    counts = starts.sum(axis=1)
    sizes = np.zeros((len(candidates), max(1, counts.max())), int)
    row_of_token, token = np.nonzero(candidates)
    np.add.at(sizes, (row_of_token, word_of[row_of_token, token]), 1)
    keys = np.full(sizes.shape, np.inf)
    row_of_start, start = np.nonzero(starts)
    keys[row_of_start, word_of[row_of_start, start]] = order[row_of_start, start]
    taken = np.zeros(sizes.shape, bool)
    left = budget.copy()
    for word in np.argsort(keys, axis=1, kind="stable").T:
        size = sizes[rows, word]
        take = (size > 0) & (size <= left)
        taken[rows, word] = take
        left -= np.where(take, size, 0)
        if not left.any():
            break
    return candidates & np.take_along_axis(taken, np.maximum(word_of, 0), axis=1)
