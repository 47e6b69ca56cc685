"""Rows are computed in pieces on a CPU, and answered as if together."""

import jax
import numpy as np
import pytest

from bert_jax.config import configuration
from bert_jax.data.rows import BatchSize
from bert_jax.training import inference, sharding


@pytest.fixture(scope="module")
def mesh():
    config = configuration.load("configs/tiny.py", ["--config.mesh.data=1"])
    return sharding.make_mesh(config, (), jax.devices()[:1])


@pytest.mark.parametrize("whole", [1, 4, 13, 16])
@pytest.mark.parametrize("count", [1, 3, 5, 12, 32, 33])
def test_pieces_hold_each_row_once(count, whole):
    found = list(inference.pieces(count, whole))
    rows = [row for part, _ in found for row in range(count)[part]]
    assert rows == list(range(count))
    assert len({of for _, of in found}) <= 3
    # Of the rows that are computed, at least three quarters are answers.
    assert all(4 * len(range(count)[part]) >= 3 * of for part, of in found)
    assert all(of <= whole for _, of in found)


@pytest.mark.parametrize("count", [1, 3, 5, 32])
def test_rows_are_answered_in_their_order(mesh, count):
    shapes = []

    def step(params, batch):
        shapes.append(batch["input_ids"].shape)
        return {"sums": params + batch["input_ids"].sum(axis=1)}

    rows = np.arange(count * 300, dtype=np.int32).reshape(count, 300)
    batch = inference.batch_size(mesh, 32, 128)
    ask = inference.compile_predict(step, np.int32(7), mesh, batch)
    found = ask({"input_ids": rows})["sums"]
    np.testing.assert_array_equal(found, 7 + rows.sum(axis=1))
    assert all(3 * size <= 4 * count for size, _ in shapes)
    assert all(size <= batch.at(300) < 16 for size, _ in shapes)


def test_only_a_single_cpu_computes_in_pieces(mesh):
    assert inference.batch_size(mesh, 32, 768) == BatchSize(16, 768)
    assert inference.batch_size(mesh, 3, 768) == BatchSize(3, 768)
    two = sharding.make_mesh(
        configuration.load("configs/tiny.py", ["--config.mesh.data=2"]),
        (),
        jax.devices()[:2],
    )
    assert inference.batch_size(two, 31, 768) == BatchSize(32)
