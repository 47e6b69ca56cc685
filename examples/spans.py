"""A masking: spans of words, as SpanBERT's (Joshi et al. 2020, arXiv:1907.10529).

    python -m bert_jax.main --config=examples/spans.py

Until 15% of the tokens are chosen, a span begins at a random word and has up to ten
words: their number is geometric with p = 0.2, cut at ten, 3.8 in the mean. All of a
span becomes [MASK] (80%), random tokens (10%), or stays (10%).
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from ml_collections import ConfigDict

from bert_jax.data.masking import MASKINGS, Texts, Uniforms, replacement_ids

extends = "tiny"
P, MOST = 0.2, 10
# The chance of each length from 1 to MOST: geometric, of those that are not longer.
CHANCES = P * (1 - P) ** np.arange(MOST)
CHANCES /= CHANCES.sum()


def lengths(numbers: Float[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """Words of a span, for numbers in [0, 1)."""
    found = 1 + np.searchsorted(np.cumsum(CHANCES), numbers, side="right")
    return np.minimum(found, MOST)  # the sum of the chances may be below 1


def spans(
    texts: Texts, uniforms: Uniforms, masking: ConfigDict
) -> tuple[Bool[np.ndarray, "batch length"], Int[np.ndarray, "batch length"]]:
    """Chooses spans. See `masking.MASKINGS`."""
    ids, candidates = texts.input_ids, texts.candidates
    size = ids.shape[1]
    order, words, action, piece = np.split(uniforms(4 * size), 4, axis=1)
    starts = candidates & ~texts.continuation[ids]
    starts[:, 1:] |= candidates[:, 1:] & ~candidates[:, :-1]
    # Where the span of each chosen token begins. -1 means that it is not chosen.
    begins = np.full(ids.shape, -1)
    for row in range(len(ids)):
        _choose(
            *(begins[row], candidates[row], np.flatnonzero(starts[row])),
            *(order[row], lengths(words[row]), texts.budget[row]),
        )
    where = np.nonzero(begins >= 0)
    replaced = ids.copy()
    replaced[where] = replacement_ids(
        *(ids[where], action[where[0], begins[where]], piece[where], texts, masking)
    )
    return begins >= 0, replaced


def _choose(
    begins: Int[np.ndarray, " length"],
    candidates: Bool[np.ndarray, " length"],
    starts: Int[np.ndarray, " words"],
    order: Float[np.ndarray, " length"],
    words: Int[np.ndarray, " length"],
    budget: int,
) -> None:
    """Writes a row's spans into `begins`: at the words with the smallest numbers first,
    up to a special token, another span or the end of the budget."""
    for start in starts[np.argsort(order[starts], kind="stable")]:
        if begins[start] >= 0:
            continue
        after = starts[starts > start][words[start] - 1 :]
        end = min([*after[:1], start + budget, len(begins)])
        blocked = ~candidates[start:end] | (begins[start:end] >= 0)
        if blocked.any():
            end = start + int(np.argmax(blocked))
        begins[start:end] = start
        budget -= end - start
        if not budget:
            return


MASKINGS["spans"] = spans


def get_config(config: ConfigDict) -> ConfigDict:
    config.masking.name = "spans"
    return config
