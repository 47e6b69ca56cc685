"""Masks: shares within binomial bounds, whole words, and a slow transcription."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from bert_jax.data import masking
from tests.micro import error_line

VOCAB, PAD, CLS, SEP, MASK = 2000, 0, 2, 3, 4
CONTINUATION = np.zeros(VOCAB, bool)
CONTINUATION[1000:] = True  # tokens "##..."


def config(**changes):
    fields = {"name": "bert", "masked_lm_prob": 0.15, "max_predictions_per_seq": 20}
    fields |= {"whole_word": False, "mask_fraction": 0.8, "random_fraction": 0.1}
    return ConfigDict({**fields, **changes})


def batch(rows, length, seed=0):
    """Pairs of random lengths: [CLS] A [SEP] B [SEP] padding."""
    rng = np.random.default_rng(seed)
    ids = np.full((rows, length), PAD, np.int32)
    mask = np.zeros_like(ids)
    candidates = np.zeros(ids.shape, bool)
    for row in range(rows):
        end = int(rng.integers(5, length + 1))
        middle = int(rng.integers(2, end - 2))
        ids[row, :end] = rng.integers(5, VOCAB, end)
        candidates[row, :end] = True
        for place, token in ((0, CLS), (middle, SEP), (end - 1, SEP)):
            ids[row, place] = token
            candidates[row, place] = False
        mask[row, :end] = 1
    return ids, mask, candidates


def apply(ids, mask, candidates, masking_config, seed=0, epoch=0):
    rows, columns = len(ids), masking_config.max_predictions_per_seq
    drawn = []

    def numbers(count):
        key = (seed, b"mask", np.full(rows, epoch), np.arange(rows))
        drawn.append(masking.row_uniforms(*key, count))
        return drawn[-1]

    given = (ids, mask, candidates, numbers, masking_config, columns)
    return masking.mask_pairs(*given, MASK, CONTINUATION), drawn[0]


def within(successes, trials, share, sigmas=5):
    deviation = math.sqrt(trials * share * (1 - share))
    return abs(successes - trials * share) <= sigmas * deviation


@pytest.mark.parametrize("whole_word", [False, True])
def test_shares_over_a_large_sample(whole_word):
    ids, mask, candidates = batch(4000, 128)
    masked, _ = apply(ids, mask, candidates, config(whole_word=whole_word))
    weights = masked["masked_lm_weights"] > 0
    rounded = [round(n * 0.15) for n in mask.sum(axis=1).tolist()]
    budgets = np.clip(rounded, 1, 20)
    chosen = weights.sum(axis=1)
    assert (chosen <= budgets).all()
    if whole_word:
        assert chosen.sum() > 0.97 * budgets.sum()
    else:
        assert (chosen == np.minimum(budgets, candidates.sum(axis=1))).all()
    rows, columns = np.nonzero(weights)
    places = masked["masked_lm_positions"][rows, columns]
    assert candidates[rows, places].all()
    assert (masked["masked_lm_ids"][rows, columns] == ids[rows, places]).all()
    now = masked["input_ids"][rows, places]
    is_mask, same, count = now == MASK, now == ids[rows, places], len(now)
    # A random token is the old one or [MASK] once in 2,000 draws.
    assert within(is_mask.sum(), count, 0.8 + 0.1 / VOCAB)
    assert within(same.sum(), count, 0.1 + 0.1 / VOCAB)
    random = now[~is_mask & ~same]
    assert within((random < VOCAB // 2).sum(), len(random), 0.5)
    assert random.min() < 20 and random.max() >= VOCAB - 20
    untouched = np.ones(ids.shape, bool)
    untouched[rows, places] = False
    assert (masked["input_ids"][untouched] == ids[untouched]).all()


def test_columns_ascend_and_unused_ones_are_zero():
    ids, mask, candidates = batch(200, 64, seed=3)
    masked, _ = apply(ids, mask, candidates, config())
    columns = (masked[f"masked_lm_{name}"] for name in ("positions", "weights", "ids"))
    for positions, weights, targets in zip(*columns, strict=True):
        used = int(weights.sum())
        assert (weights[:used] == 1).all() and (weights[used:] == 0).all()
        assert (np.diff(positions[:used]) > 0).all()
        assert not positions[used:].any() and not targets[used:].any()


def slow_whole_words(ids, candidates, order, budget):
    """create_masked_lm_predictions' loop over shuffled words, for one row."""
    words = []
    for place in np.flatnonzero(candidates):
        if CONTINUATION[ids[place]] and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        else:
            words.append([place])
    words.sort(key=lambda word: order[word[0]])
    chosen = []
    for word in words:
        if len(chosen) + len(word) <= budget:
            chosen += word
    return sorted(chosen)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), epoch=st.integers(0, 50))
def test_whole_words_equal_a_slow_transcription(seed, epoch):
    ids, mask, candidates = batch(8, 40, seed)
    masked, draws = apply(ids, mask, candidates, config(whole_word=True), seed, epoch)
    for row in range(len(ids)):
        budget = min(20, max(1, round(int(mask[row].sum()) * 0.15)))
        wanted = slow_whole_words(ids[row], candidates[row], draws[row, :40], budget)
        used = masked["masked_lm_weights"][row] > 0
        assert masked["masked_lm_positions"][row][used].tolist() == wanted


def test_record_is_masked_alone_as_in_its_batch_and_anew_each_epoch():
    def drawn(epochs, records):
        return masking.row_uniforms(3, b"mask", np.array(epochs), np.array(records), 40)

    (alone,) = drawn([2], [17])
    among = drawn([2] * 4, [5, 17, 1, 0])
    assert (alone == among[1]).all()
    assert (alone != drawn([3], [17])[0]).all()
    assert (among[0] != among[1]).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 2), min_size=1, max_size=5),
    st.integers(0, 110),
)
def test_row_has_the_numbers_of_a_generator_of_its_own(seed, rows, count):
    epochs, records = np.array(rows).T
    drawn = masking.row_uniforms(seed, b"mask", epochs, records, count)
    for row, (epoch, record) in enumerate(rows):
        philox = np.random.Philox(
            key=np.array([seed, 0x6D61736B], np.uint64),
            counter=np.array([0, 0, epoch, record], np.uint64),
        )
        wanted = np.random.Generator(philox).random(count)
        assert drawn[row].tolist() == wanted.tolist()


@settings(max_examples=100, deadline=None)
@given(
    order=st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=12, max_size=12),
    real=st.integers(0, 12),
    budget=st.integers(1, 5),
)
def test_masking_chooses_the_first_of_equal_numbers(order, real, budget):
    places = np.arange(12)
    ids, mask = np.full((1, 12), 7, np.int32), np.ones((1, 12), np.int32)
    given = (ids, mask, (places < real)[None], lambda _: np.array([order + [0.0] * 10]))
    own = config(masked_lm_prob=budget / 12)
    masked = masking.mask_pairs(*given, own, 5, MASK, CONTINUATION)
    wanted = sorted(sorted(range(real), key=lambda place: order[place])[:budget])
    used = masked["masked_lm_weights"][0] > 0
    assert masked["masked_lm_positions"][0][used].tolist() == wanted


def test_masking_predicts_nothing_in_an_empty_row():
    zeros = np.zeros((2, 10), np.int32)
    for whole_word in (False, True):
        given = (zeros, zeros, zeros.astype(bool), config(whole_word=whole_word))
        masked, _ = apply(*given)
        assert not masked["masked_lm_weights"].any()
        assert not masked["input_ids"].any()


def test_masking_of_a_config_file():
    ids, mask, candidates = batch(4, 40)
    given = (ids, mask, candidates, lambda count: None)
    first = candidates & (np.cumsum(candidates, axis=1) == 1)
    masking.MASKINGS["first"] = lambda texts, *_: (first, np.where(first, 9, ids))
    masked = masking.mask_pairs(*given, config(name="first"), 20, MASK, CONTINUATION)
    assert masked["masked_lm_weights"].sum(axis=1).tolist() == [1] * 4
    assert (masked["masked_lm_ids"][:, 0] == ids[first]).all()
    assert (masked["input_ids"] == np.where(first, 9, ids)).all()
    whole = mask.astype(bool)
    masking.MASKINGS["whole"] = lambda texts, *_: (whole, ids)
    given = (*given, config(name="whole"), 40, MASK, CONTINUATION)
    line = error_line(masking.mask_pairs, *given)
    assert "masking.name=whole: chooses position 0 of row 0, which is no can" in line
    every = candidates.copy()
    masking.MASKINGS["every"] = lambda texts, *_: (every, ids)
    given = (*given[:-4], config(name="every"), 2, MASK, CONTINUATION)
    line = error_line(masking.mask_pairs, *given)
    assert re.search(r"every: chooses \d+ positions of row 0, whose budget is 2$", line)
