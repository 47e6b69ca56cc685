"""Texts in shared rows: each once, as alone, and about as many tokens in each row."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.packing import PackedRows, grouped
from bert_jax.data.rows import Feature, Rows


def features_of(lengths):
    """Rows whose ids tell which row and place they are."""
    return [
        Feature(
            row,
            {
                "input_ids": 100 * (row + 1) + np.arange(length),
                "segment_ids": np.arange(length) // 2,
                "label": row,
                "target": np.array([row, -row], np.float32),
            },
        )
        for row, length in enumerate(lengths)
    ]


@given(st.integers(1, 6), st.integers(1, 12), st.randoms(use_true_random=False))
def test_groups_have_each_text_once_and_are_about_equal(each, rows, random):
    lengths = np.array([random.randint(1, 60) for _ in range(each * rows)])
    groups = grouped(lengths, each)
    assert groups.shape == (rows, each)
    assert sorted(groups.ravel()) == list(range(len(lengths)))
    tokens = lengths[groups].sum(axis=1)
    # Each turn gives the longest text to the emptiest group.
    assert tokens.max() - tokens.min() <= lengths.max()
    assert tokens.max() <= each * lengths.max()
    np.testing.assert_array_equal(groups, grouped(lengths, each))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=8, max_size=40), st.integers(0, 5))
def test_a_batch_has_the_texts_of_a_batch_that_does_not_share_rows(lengths, step):
    features, fill = features_of(lengths), {"input_ids": 7}
    given = (step, 8, slice(None), 3)
    packed = next(PackedRows(features, fill, 4).batches(*given, limit=30))
    alone = next(Rows(features, fill).batches(*given, limit=30))
    assert packed["label"].shape == packed["row_weights"].shape == (2, 4)
    assert packed["target"].shape == (2, 4, 2) and packed["row_weights"].all()
    labels = packed["label"].ravel()
    assert sorted(labels) == sorted(alone["label"])
    assert (packed["input_ids"] == 7)[packed["input_mask"] == 0].all()
    for row, place in itertools.product(range(2), range(4)):
        own = packed["sequence_ids"][row] == place + 1
        label = packed["label"][row, place]
        columns = features[label].columns
        assert (packed["input_ids"][row, own] == columns["input_ids"]).all()
        assert (packed["segment_ids"][row, own] == columns["segment_ids"]).all()
        assert packed["position_ids"][row, own].tolist() == list(range(own.sum()))
        assert packed["cls_positions"][row, place] == np.flatnonzero(own)[0]
        assert (packed["target"][row, place] == columns["target"]).all()


def test_masks_may_have_holes():
    mask = np.array([1, 0, 1, 1])
    columns = {"input_ids": np.arange(4) + 1, "segment_ids": 0 * mask}
    features = [Feature(n, {**columns, "input_mask": mask}) for n in range(2)]
    (row,) = (next(PackedRows(features, {}, 2).batches(0, 2, slice(None), 0, limit=4)),)
    assert row["input_mask"].tolist() == [[1, 0, 1, 1, 1, 0, 1, 1]]
    assert row["input_ids"].tolist() == [[1, 0, 3, 4, 1, 0, 3, 4]]
    assert row["position_ids"].tolist() == [[0, 0, 2, 3, 0, 0, 2, 3]]


def test_evaluation_has_a_text_a_row():
    table = PackedRows(features_of([3, 5, 4]), {}, 2)
    (batch,) = table.each_once(4, slice(None), limit=8)
    assert batch["label"].tolist() == [0, 2, 1, 0]
    assert "sequence_ids" not in batch and batch["row_weights"].tolist() == [1, 1, 1, 0]
