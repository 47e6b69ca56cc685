"""Draws masked LM targets for each (seed, epoch, record).

The rules are those of create_masked_lm_predictions in google-research/bert
(create_pretraining_data.py), applied to a whole batch at once.
"""

from typing import Any, NamedTuple

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
    """Any record's mask can be recomputed alone."""
    numbers = uniform(seed, b"mask", epochs, records, length + 2 * predictions)
    order, action, piece = np.split(numbers, [length, length + predictions], axis=1)
    return Draws(order, action, piece)


def uniform(
    seed: int,
    purpose: bytes,
    epochs: Int[np.ndarray, "batch"],
    records: Int[np.ndarray, "batch"],
    count: int,
) -> Float[np.ndarray, "batch count"]:
    """Numbers in [0, 1), each row's from its own counter of one Philox stream.

    Args:
      purpose: keeps streams apart; at most eight bytes.
    """
    # One generator, set to each row's counter: making one for each takes four times as
    # long, and Philox written with arrays twice as long or more.
    key = np.array([seed, int.from_bytes(purpose)], np.uint64)
    philox = np.random.Philox(key=key)
    generator = np.random.Generator(philox)
    state: Any = philox.state
    # The low words count the numbers drawn; the high words keep rows apart.
    counters = np.zeros((len(records), 4), np.uint64)
    counters[:, 2], counters[:, 3] = epochs, records
    numbers = np.empty((len(records), count))
    for counter, row in zip(counters, numbers, strict=True):
        state["state"]["counter"] = counter
        philox.state = state
        generator.random(out=row)
    return numbers


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
        chosen = _choose_tokens(candidates, draws.order, budget)

    row, position = np.nonzero(chosen)
    counts = chosen.sum(axis=1)
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    targets = input_ids[row, position]
    action, piece = draws.action[row, column], draws.piece[row, column]
    masked = action < masking.mask_fraction
    random = ~masked & (action < masking.mask_fraction + masking.random_fraction)
    random_pieces = (piece * continuation.size).astype(input_ids.dtype)
    ids = input_ids.copy()
    ids[row, position] = np.where(
        masked, mask_id, np.where(random, random_pieces, targets)
    )
    positions, originals = np.zeros((2, *draws.action.shape), np.int32)
    weights = np.zeros(draws.action.shape, np.float32)
    positions[row, column] = position
    originals[row, column] = targets
    weights[row, column] = 1
    return Masked(
        input_ids=ids,
        masked_lm_positions=positions,
        masked_lm_ids=originals,
        masked_lm_weights=weights,
    )


def _choose_tokens(
    candidates: Bool[np.ndarray, "batch length"],
    order: Float[np.ndarray, "batch length"],
    budget: Int[np.ndarray, "batch"],
) -> Bool[np.ndarray, "batch length"]:
    """Takes the candidates with the smallest numbers; of equal ones the first."""
    values = np.where(candidates, order, np.inf)
    # Sorting values takes a fifth of the time of sorting their indices.
    last = np.take_along_axis(np.sort(values, axis=1), budget[:, None] - 1, axis=1)
    below, equal = values < last, values == last
    left = budget - below.sum(axis=1)
    return candidates & (below | (equal & (np.cumsum(equal, axis=1) <= left[:, None])))


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
