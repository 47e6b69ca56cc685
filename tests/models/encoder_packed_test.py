"""Packed sequences are encoded as if each were alone."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.encoder import Packed
from tests.models.small_bert import CONFIG, apply, random_params

PACKED = [[7, 5, 4], [9, 6]]  # tokens of the sequences of two rows


def sequences(changed=None):
    """The sequences of PACKED, packed and one a row: batches for the model.

    `changed`: the number of a sequence that gets other ids.
    """
    rng = np.random.default_rng(0)
    alone, rows, sizes = [], [], [(r, n) for r, row in enumerate(PACKED) for n in row]
    packed = np.zeros((5, len(PACKED), 16), np.int32)
    columns = np.zeros((len(PACKED), 6), np.int32), np.zeros((len(PACKED), 3), np.int32)
    used = [0] * len(PACKED)
    for number, (row, size) in enumerate(sizes):
        ids = rng.integers(0, 50, size)
        other = rng.integers(0, 50, size)
        ids = other if number == changed else ids
        segments = (np.arange(size) > size // 2).astype(int)
        masked = rng.permutation(size)[:2]
        padded = [np.pad(x, (0, 16 - size)) for x in (ids, ids * 0 + 1, segments)]
        alone.append((*padded, masked))
        start, index = used[row], len([r for r, _ in sizes[:number] if r == row])
        values = (ids, 1, segments, index + 1, np.arange(size))
        for column, value in zip(packed, values, strict=True):
            column[row, start : start + size] = value
        columns[0][row, 2 * index : 2 * index + 2] = masked + start
        columns[1][row, index] = start
        rows.append((row, index))
        used[row] += size
    one = tuple(jnp.asarray(np.stack(x), jnp.int32) for x in zip(*alone, strict=True))
    ids, mask, segments, numbers, places = map(jnp.asarray, packed)
    where = Packed(numbers, places, jnp.asarray(columns[1]))
    return one, (ids, mask, segments, jnp.asarray(columns[0]), None, where), rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [{}, {"scan_layers": True, "remat": "full"}],
    ids=["unrolled", "scan_remat"],
)
def test_packed_sequences_are_encoded_as_if_alone(variant):
    config = dataclasses.replace(CONFIG, **variant)
    params = random_params(config)
    one, packed, rows = sequences()
    alone, together = apply(config, params, *one), apply(config, params, *packed)
    assert together["next_sentence_logits"].shape == (2, 3, 2)
    for number, (row, index) in enumerate(rows):
        for name, mine in (
            ("masked_lm_logits", np.s_[row, 2 * index : 2 * index + 2]),
            ("next_sentence_logits", np.s_[row, index]),
        ):
            wanted = alone[name][number]
            np.testing.assert_allclose(
                together[name][mine], wanted, atol=1e-5 * np.abs(wanted).max()
            )


@pytest.mark.slow
@pytest.mark.parametrize("changed", [1, 3])
def test_packed_sequence_changes_no_bit_of_its_neighbors(changed):
    params = random_params(CONFIG)
    before, after = (
        apply(CONFIG, params, *sequences(number)[1]) for number in (None, changed)
    )
    for number, (row, index) in enumerate(sequences()[2]):
        same = [
            np.array_equal(before[name][mine], after[name][mine])
            for name, mine in (
                ("masked_lm_logits", np.s_[row, 2 * index : 2 * index + 2]),
                ("next_sentence_logits", np.s_[row, index]),
            )
        ]
        assert same == [number != changed] * 2
