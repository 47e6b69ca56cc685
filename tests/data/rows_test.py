"""Rows of different lengths: nothing lost, nothing twice, padding where it belongs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.rows import (
    LENGTHS,
    BatchSize,
    Feature,
    Rows,
    sorted_groups,
)


def rows_of(lengths, choices=None):
    """Rows whose ids tell which row and place they are."""
    features = []
    for row, length in enumerate(lengths):
        ids = 100 * (row + 1) + np.arange(length)
        columns = {"input_ids": ids, "segment_ids": np.ones(length, int), "label": row}
        if choices:
            ids = np.stack([ids + 50 * choice for choice in range(choices)])
            mask = np.ones_like(ids)
            mask[1:, -1] = 0
            columns |= {"input_ids": ids, "input_mask": mask}
            columns["segment_ids"] = np.ones_like(ids)
        features.append(Feature(row, columns))
    return Rows(features, {"input_ids": 7})


def test_batch_is_padded():
    batch = rows_of([2, 3]).batch(np.array([1, 0, 2]), 4)
    assert batch["input_ids"].tolist() == [
        [200, 201, 202, 7],
        [100, 101, 7, 7],
        [7] * 4,
    ]
    assert batch["input_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [0] * 4]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [0] * 4]
    assert batch["label"].tolist() == [1, 0, 0]
    assert batch["row_weights"].tolist() == [1, 1, 0]
    assert rows_of([2, 3]).fraction(201) == 1 / 5


def test_choices_keep_their_own_mask():
    batch = rows_of([2, 3], choices=2).batch(np.array([0]), 3)
    assert batch["input_ids"].tolist() == [[[100, 101, 7], [150, 151, 7]]]
    assert batch["input_mask"].tolist() == [[[1, 1, 0], [1, 0, 0]]]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 9))
def test_each_once_has_every_row_once(lengths, size):
    table = rows_of(lengths)
    labels = []
    for batch in table.sorted_batches(size, slice(None), limit=40):
        real = batch["row_weights"] > 0
        assert len(real) == size
        labels += batch["label"][real].tolist()
        # Short rows come first, so that little is padding.
        assert batch["input_ids"].shape[1] in (*LENGTHS, 40)
    assert sorted(labels) == list(range(len(lengths)))
    assert (np.diff(table.lengths[labels]) >= 0).all()


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 3))
def test_batches_hold_every_row_once_an_epoch_in_another_order(count, size, seed):
    table = rows_of([3] * count)
    batches = table.batches(0, size, slice(None), seed, limit=3)
    steps = -(-2 * count // size)
    drawn = np.concatenate([b["label"] for b in itertools.islice(batches, steps)])
    first, second = drawn[:count], drawn[count : 2 * count]
    assert sorted(first) == sorted(second) == list(range(count))
    assert count < 8 or list(first) != list(second)


def test_batches_begin_anywhere_and_each_host_has_its_rows():
    table = rows_of(range(1, 31))
    whole = table.batches(0, 8, slice(None), 0, limit=30)
    later = table.batches(3, 8, slice(2, 5), 0, limit=30)
    fourth, part = list(itertools.islice(whole, 4))[-1], next(later)
    for name, column in fourth.items():
        np.testing.assert_array_equal(column[2:5], part[name])


@pytest.mark.parametrize(("longest", "length"), [(5, 8), (8, 8), (9, 12), (13, 14)])
def test_length_is_the_next_of_a_few_or_the_limit(longest, length):
    table = rows_of([1, longest])
    batch = next(table.batches(0, 2, slice(None), 0, limit=14))
    assert batch["input_ids"].shape[1] == length
    batch = next(table.batches(0, 2, slice(None), 0, limit=14, to_limit=True))
    assert batch["input_ids"].shape[1] == 14


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 512), max_size=60),
    st.integers(1, 32),
    st.sampled_from([0, 128, 768]),
)
def test_groups_hold_each_row_once_from_short_to_long(lengths, rows, width):
    size = BatchSize(rows, width)
    groups = sorted_groups(lengths, size, 512)
    order = [index for group, _ in groups for index in group]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths)
    for number, (group, tokens) in enumerate(groups):
        assert tokens == size.length(max(lengths[i] for i in group), 512)
        most = size.max_rows(tokens)
        assert len(group) == most or (number == 0 and 0 < len(group) < most)


@pytest.mark.parametrize(("width", "most", "count"), [(0, 1.5, 9), (128, 1.125, 24)])
def test_lengths_of_answers_are_few_where_compiling_is_slow(width, most, count):
    lengths = [BatchSize(32, width).length(tokens, 512) for tokens in range(1, 513)]
    assert len(set(lengths)) == count
    for tokens, length in enumerate(lengths, 1):
        assert tokens <= length <= max(32, tokens + 15, most * tokens)


def test_batch_on_a_cpu_has_fewer_rows_the_longer_and_wider_they_are():
    rows = {
        width: [BatchSize(16, width).max_rows(n) for n in (64, 128, 256, 512, 4096)]
        for width in (128, 256, 768, 1024)
    }
    assert rows == {
        128: [16, 16, 16, 5, 1],
        256: [16, 16, 9, 2, 1],
        768: [16, 8, 3, 1, 1],
        1024: [16, 6, 2, 1, 1],
    }
    assert BatchSize(32).max_rows(4096) == 32
