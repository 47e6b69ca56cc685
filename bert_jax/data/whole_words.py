"""Masks of whole words (`masking.whole_word`)."""

import numpy as np
from jaxtyping import Bool, Float, Int


def choose(
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
