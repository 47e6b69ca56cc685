"""Packed rows: each pair once, whole, and masked as it is without packing."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data import loader, packing
from bert_jax.data.packing import PackedRows, group_texts
from bert_jax.data.rows import Feature, Rows
from tests.data.preparing import contents, of_corpus, prepared, same

LENGTH = 48


@pytest.fixture(scope="module")
def config(corpus, tmp_path_factory):
    """Short documents: many pairs are shorter than the row."""
    config = of_corpus(corpus, tmp_path_factory.mktemp("data"))
    config.corpus.update(max_seq_length=LENGTH, short_seq_prob=0.5, packing=True)
    config.masking.max_predictions_per_seq = 6
    return config


@pytest.fixture(scope="module")
def data(config):
    return prepared(config, LENGTH)


def plain(config):
    config = config.copy_and_resolve_references()
    config.corpus.packing = False
    return config


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_plan_has_each_record_once_in_rows_that_are_long_enough(lengths):
    rows = packing.plan_rows(np.array(lengths), 20)
    assert sorted(rows[rows >= 0]) == list(range(len(lengths)))
    found = np.where(rows >= 0, np.array(lengths)[rows], 0)
    assert (found.sum(axis=1) <= 20).all() and rows.shape[1] == packing.PAIRS
    assert (rows[:, 0] >= 0).all()
    assert ((rows[:, :-1] >= 0) | (rows[:, 1:] < 0)).all()  # no gap
    assert np.array_equal(rows, packing.plan_rows(np.array(lengths), 20))


def test_longest_pair_goes_first_to_the_fullest_row_that_it_fits():
    lengths = np.array([2, 3, 1, 7, 6, 1])
    rows = packing.plan_rows(lengths, 10)
    found = {tuple(lengths[row[row >= 0]]) for row in rows}
    assert found == {(7, 3), (6, 2, 1, 1)}
    # No more than four a row.
    counts = (packing.plan_rows(np.ones(9, int), 10) >= 0).sum(axis=1)
    assert sorted(counts) == [1, 4, 4]
    # Nor than the config says.
    counts = (packing.plan_rows(np.ones(9, int), 10, pairs=6) >= 0).sum(axis=1)
    assert sorted(counts) == [3, 6]


def test_neighbors_of_one_length_share_no_row():
    rows = packing.plan_rows(np.full(4000, 5), 20)
    assert (np.abs(np.diff(rows.astype(int))) > 1).all()


@pytest.mark.parametrize(("share", "most"), [(0.15, 3), (0.15, 99), (0.5, 4), (1.0, 2)])
@pytest.mark.parametrize("limit", [5, 11, 30])
def test_packed_rows_have_no_more_predictions_than_columns(limit, share, most):
    def budget(length):
        return min(most, max(1, round(length * share))) if length else 0

    # The order does not matter.
    combined = itertools.combinations_with_replacement(range(limit + 1), packing.PAIRS)
    fitting = (lengths for lengths in combined if sum(lengths) <= limit)
    wanted = max(sum(map(budget, lengths)) for lengths in fitting)
    assert packing.max_predictions(limit, share, most) == wanted


@pytest.mark.slow
def test_shifted_rows_begin_at_random_positions_anew_in_each_epoch(config, data):
    shifted = config.copy_and_resolve_references()
    shifted.corpus.shift_positions = True
    shifted.model.max_position_embeddings = LENGTH + 7
    (phase,) = loader.phases_of(config)
    plain_batches = loader.batch_dataset(config, phase, data)
    batches = loader.batch_dataset(shifted, phase, data)
    begins = []
    for step in range(20):
        batch, as_it_was = batches[step], plain_batches[step]
        shift = batch["position_ids"] - as_it_was.pop("position_ids")
        assert same(as_it_was, {n: rows for n, rows in batch.items() if n in as_it_was})
        assert (shift == shift[:, :1]).all() and shift.dtype == np.int32
        begins.extend(shift[:, 0])
    assert set(begins) == set(range(8))  # the last row position is the model's last
    first = loader.batch_dataset(shifted, phase, data, rows=slice(3, 4))[0]
    assert same(first, {name: some[3:4] for name, some in batches[0].items()})
    # Batches of all rows: the same ones in each epoch, in another order.
    rows = packing.packed_rows(data.folder, data.table("train"), LENGTH)
    whole = phase._replace(batch_size=len(rows))
    epochs = loader.batch_dataset(shifted, whole, data)
    one, two = (sorted(epochs[epoch]["position_ids"][:, 0]) for epoch in (0, 1))
    assert one != two


def unpacked(batch, pad=0):
    """The pairs of packed rows, one a row, as they are without packing."""
    found = []
    for row, ids in enumerate(batch["sequence_ids"]):
        used = batch["masked_lm_weights"][row] > 0
        places = batch["masked_lm_positions"][row][used]
        for number in range(1, ids.max() + 1):
            (at,) = np.nonzero(ids == number)
            start, size = at[0], len(at)
            assert at[-1] == start + size - 1
            assert batch["position_ids"][row, at].tolist() == list(range(size))
            assert batch["cls_positions"][row, number - 1] == start
            mine = (places >= start) & (places < start + size)
            names = ("input_ids", "input_mask", "segment_ids")
            pair = {n: np.pad(batch[n][row, at], (0, LENGTH - size)) for n in names}
            pair["masked_lm_positions"] = places[mine] - start
            pair["masked_lm_ids"] = batch["masked_lm_ids"][row][used][mine]
            pair["label"] = batch["next_sentence_labels"][row, number - 1]
            found.append(pair)
        assert (batch["next_sentence_labels"][row, ids.max() :] == -1).all()
        padding = ids == 0
        assert (batch["input_ids"][row, padding] == pad).all()
        assert np.array_equal(batch["input_mask"][row], ~padding)
    return found


def test_pairs_are_masked_as_without_packing(config, data):
    """In the second epoch, too: by (seed, epoch, record)."""
    (phase,) = loader.phases_of(config)
    rows = packing.packed_rows(data.folder, data.table("train"), LENGTH)
    make = loader.row_maker(plain(config), phase, data, "train")
    count = data.table("train").rows
    config = config.copy_and_resolve_references()
    config.train.batch_size = len(rows)
    for epoch in (0, 1):
        everything = make(np.arange(count), np.full(count, epoch))
        wanted = []
        for index in range(count):
            used = everything["masked_lm_weights"][index] > 0
            pair = {n: everything[n][index] for n in ("input_ids", "segment_ids")}
            pair["masked_lm_positions"] = everything["masked_lm_positions"][index][used]
            pair["masked_lm_ids"] = everything["masked_lm_ids"][index][used]
            pair["label"] = everything["next_sentence_labels"][index]
            wanted.append({n: np.asarray(x).tolist() for n, x in pair.items()})
        batch = loader.batch_at(config, epoch)
        found = [
            {n: np.asarray(x).tolist() for n, x in pair.items() if n != "input_mask"}
            for pair in unpacked(batch)
        ]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)
        total = everything["masked_lm_weights"].sum()
        assert batch["masked_lm_weights"].sum() == total


def test_dev_is_not_packed(config):
    mine, other = (loader.batch_at(c, 0, "dev") for c in (config, plain(config)))
    assert same(mine, other)


def test_data_prepared_without_packing_is_the_same_and_is_packed_later(
    config, data, tmp_path, capsys
):
    config = config.copy_and_resolve_references()
    config.corpus.data_dir = str(tmp_path)
    before = prepared(plain(config), LENGTH).folder
    files = contents(before)
    assert not any("packed" in name for name in files)
    loader.batch_at(plain(config), 0)
    assert contents(before) == files
    capsys.readouterr()
    batch = loader.batch_at(config, 3)
    pairs = data.table("train").rows
    rows = packing.packed_rows(before, data.table("train"), LENGTH)
    err = capsys.readouterr().err
    assert f"packed {pairs:,} pairs into {len(rows):,} rows of {LENGTH}: " in err
    (new,) = contents(before).keys() - files.keys()
    stored = (before / new).read_bytes()
    assert all((before / name).read_bytes() == old for name, old in files.items())
    (before / new).unlink()
    loader._open_dataset.cache_clear()
    assert same(batch, loader.batch_at(config, 3))
    assert (before / new).read_bytes() == stored


def features_of(lengths):
    """Rows whose ids tell which row and place they are."""
    found = []
    for row, length in enumerate(lengths):
        columns = {"label": row, "target": np.array([row, -row], np.float32)}
        columns["input_ids"] = 100 * (row + 1) + np.arange(length)
        columns["segment_ids"] = np.arange(length) // 2
        found.append(Feature(row, columns))
    return found


@given(st.integers(1, 6), st.integers(1, 12), st.randoms(use_true_random=False))
def test_groups_have_each_text_once_and_are_about_equal(each, rows, random):
    lengths = np.array([random.randint(1, 60) for _ in range(each * rows)])
    groups = group_texts(lengths, each)
    assert groups.shape == (rows, each)
    assert sorted(groups.ravel()) == list(range(len(lengths)))
    tokens = lengths[groups].sum(axis=1)
    # Each turn gives the longest text to the emptiest group.
    assert tokens.max() - tokens.min() <= lengths.max()
    assert tokens.max() <= each * lengths.max()
    np.testing.assert_array_equal(groups, group_texts(lengths, each))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=8, max_size=40), st.integers(0, 5))
def test_batch_has_the_texts_of_a_batch_that_does_not_share_rows(lengths, step):
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
    row = next(PackedRows(features, {}, 2).batches(0, 2, slice(None), 0, limit=4))
    assert row["input_mask"].tolist() == [[1, 0, 1, 1, 1, 0, 1, 1]]
    assert row["input_ids"].tolist() == [[1, 0, 3, 4, 1, 0, 3, 4]]
    assert row["position_ids"].tolist() == [[0, 0, 2, 3, 0, 0, 2, 3]]


def test_evaluation_has_a_text_a_row():
    table = PackedRows(features_of([3, 5, 4]), {}, 2)
    (batch,) = table.sorted_batches(4, slice(None), limit=8)
    assert batch["label"].tolist() == [0, 2, 1, 0]
    assert "sequence_ids" not in batch and batch["row_weights"].tolist() == [1, 1, 1, 0]
