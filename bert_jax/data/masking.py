"""Masked LM targets, drawn for each (seed, epoch, record).

The rules are those of create_masked_lm_predictions in google-research/bert
(create_pretraining_data.py), applied to a whole batch at once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from ml_collections import ConfigDict

from bert_jax.config.phases import Phase
from bert_jax.data import packing
from bert_jax.data.rows import Batch
from bert_jax.errors import UserError
from bert_jax.registry import MASKINGS


class Texts(NamedTuple):
    """Rows to mask."""

    input_ids: Int[np.ndarray, "batch length"]  # with [CLS], [SEP] and padding
    candidates: Bool[np.ndarray, "batch length"]  # tokens that may be predicted
    budget: Int[np.ndarray, "batch"]  # maximum number to predict, at least 1
    columns: int  # maximum number in any row
    mask_id: int  # id of [MASK]
    continuation: Bool[np.ndarray, "vocab"]  # tokens that continue a word ("##...")
    step: int = 0  # of the batch, in dev 0
    tokens: Sequence[str] = ()  # the vocabulary: the token of each id


# Returns `count` numbers in [0, 1) for each row: [batch, count]. They depend on the
# seed, the epoch and the record alone, so any record's mask can be computed alone.
Uniforms = Callable[[int], Float[np.ndarray, "batch count"]]


def row_uniforms(
    seed: int,
    purpose: bytes,
    epochs: Int[np.ndarray, "batch"],
    records: Int[np.ndarray, "batch"],
    count: int,
) -> Float[np.ndarray, "batch count"]:
    """Draws numbers in [0, 1), each row's from a separate counter of one Philox stream.

    Args:
      purpose: Name that keeps streams apart, at most eight bytes.
    """
    # One generator, set to each row's counter: making one for each takes four times as
    # long, and Philox written with arrays twice as long or more.
    key = np.array([seed, int.from_bytes(purpose)], np.uint64)
    philox = np.random.Philox(key=key)
    generator = np.random.Generator(philox)
    state: Any = philox.state
    # The low words count the numbers drawn. The high words keep rows apart.
    counters = np.zeros((len(records), 4), np.uint64)
    counters[:, 2], counters[:, 3] = epochs, records
    numbers = np.empty((len(records), count))
    for counter, row in zip(counters, numbers, strict=True):
        state["state"]["counter"] = counter
        philox.state = state
        generator.random(out=row)
    return numbers


def mask_pairs(
    input_ids: Int[np.ndarray, "batch length"],
    input_mask: Int[np.ndarray, "batch length"],
    candidates: Bool[np.ndarray, "batch length"],
    uniforms: Uniforms,
    masking: ConfigDict,
    columns: int,
    mask_id: int,
    continuation: Bool[np.ndarray, "vocab"],
    step: int = 0,
    tokens: Sequence[str] = (),
) -> Batch:
    """Chooses the tokens to predict and their replacements, by `masking.name`.

    Args: see Texts.

    Returns:
      The masked `input_ids`, and `masked_lm_positions`, which ascend, `masked_lm_ids`
      and `masked_lm_weights` [batch, columns]. Unused columns are 0, with weight 0.

    Raises:
      UserError: The masking chose a position that is no candidate, or too many.
    """
    # rint rounds half to even, like Python's round in Google's code.
    share = np.rint(input_mask.sum(axis=1) * masking.masked_lm_prob).astype(int)
    budget = np.minimum(columns, np.maximum(1, share))
    texts = Texts(
        input_ids,
        candidates,
        budget,
        columns,
        mask_id,
        continuation,
        step,
        tokens,
    )
    chosen, ids = MASKINGS.lookup(masking.name)(texts, uniforms, masking)
    for row, position in np.argwhere(chosen & ~candidates)[:1].tolist():
        raise UserError(
            f"config.masking.name={masking.name}: chooses position {position} of row "
            f"{row}, which is no candidate"
        )
    counts = chosen.sum(axis=1)
    for row in np.flatnonzero(counts > budget)[:1].tolist():
        raise UserError(
            f"config.masking.name={masking.name}: chooses {counts[row]} positions of "
            f"row {row}, whose budget is {budget[row]}"
        )
    row, position, column = _places(chosen)
    positions, originals = np.zeros((2, len(ids), columns), np.int32)
    weights = np.zeros((len(ids), columns), np.float32)
    positions[row, column] = position
    originals[row, column] = input_ids[row, position]
    weights[row, column] = 1
    return {
        "input_ids": ids,
        "masked_lm_positions": positions,
        "masked_lm_ids": originals,
        "masked_lm_weights": weights,
    }


def bert_masking(
    texts: Texts, uniforms: Uniforms, masking: ConfigDict
) -> tuple[Bool[np.ndarray, "batch length"], Int[np.ndarray, "batch length"]]:
    """Masks single tokens, or with `masking.whole_word` all tokens of a word.

    This is BERT's entry of MASKINGS.

    Returns:
      The chosen positions, among the candidates and no more of a row than its budget,
      and all ids as the model is to see them.
    """
    ids, candidates, budget, columns, *_ = texts
    length = ids.shape[1]
    order, action, piece = np.split(
        uniforms(length + 2 * columns), [length, length + columns], axis=1
    )
    if masking.whole_word:
        starts = candidates & ~texts.continuation[ids]
        # A sentence that was cut at the front may start inside a word.
        starts[:, 1:] |= candidates[:, 1:] & ~candidates[:, :-1]
        chosen = _choose_words(candidates, starts, order, budget)
    else:
        chosen = _choose_tokens(candidates, order, budget)
    row, position, column = _places(chosen)
    replaced = ids.copy()
    replaced[row, position] = replacement_ids(
        ids[row, position], action[row, column], piece[row, column], texts, masking
    )
    return chosen, replaced


def replacement_ids(
    ids: Int[np.ndarray, " n"],
    action: Float[np.ndarray, " n"],
    piece: Float[np.ndarray, " n"],
    texts: Texts,
    masking: ConfigDict,
) -> Int[np.ndarray, " n"]:
    """Returns [MASK], a random token or the token itself, for each id.

    Args:
      action: Numbers in [0, 1) that choose among the three.
      piece: Numbers in [0, 1) that choose the random token.
    """
    masked = action < masking.mask_fraction
    random = ~masked & (action < masking.mask_fraction + masking.random_fraction)
    random_pieces = (piece * texts.continuation.size).astype(ids.dtype)
    return np.where(masked, texts.mask_id, np.where(random, random_pieces, ids))


def _places(chosen: Bool[np.ndarray, "batch length"]) -> tuple[np.ndarray, ...]:
    """Returns (row, position, column of the predictions) of each chosen position."""
    row, position = np.nonzero(chosen)
    counts = chosen.sum(axis=1)
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return row, position, column


def _choose_tokens(
    candidates: Bool[np.ndarray, "batch length"],
    order: Float[np.ndarray, "batch length"],
    budget: Int[np.ndarray, "batch"],
) -> Bool[np.ndarray, "batch length"]:
    """Takes the candidates with the smallest numbers, the first of equal ones."""
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
    """Takes words in random order, and skips words that would exceed the budget."""
    rows = np.arange(len(candidates))
    word_of = np.cumsum(starts, axis=1) - 1  # word of each candidate
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


def batch_shapes(config: ConfigDict, phase: Phase) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a phase's training batches, by column."""
    rows, length = phase.batch_size, phase.max_seq_length
    tokens: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")
    predictions = phase.max_predictions_per_seq
    pairs: tuple[int, ...] = ()
    if config.corpus.packing:
        tokens += ("sequence_ids", "position_ids")
        share = phase.value(config, "masking.masked_lm_prob")
        max_pairs = config.corpus.packed_pairs
        predictions = packing.max_predictions(length, share, predictions, max_pairs)
        pairs = (max_pairs,)
    names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    masked = dict.fromkeys(names, (rows, predictions)) if has_masks(config) else {}
    return {
        **dict.fromkeys(tokens, (rows, length)),
        **masked,
        **({"cls_positions": (rows, *pairs)} if pairs else {}),
        "next_sentence_labels": (rows, *pairs),
    }


def has_masks(config: ConfigDict) -> bool:
    """Returns whether tokens are masked for prediction. Left to right, none is."""
    return bool(config.task.objective != "ltr" and not config.model.causal)
