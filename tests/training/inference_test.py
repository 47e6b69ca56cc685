"""Rows are computed in pieces on a CPU, and answered as if together."""

import jax
import numpy as np
import pytest

from bert_jax.config import configuration
from bert_jax.training import inference, sharding


@pytest.fixture(scope="module")
def mesh():
    config = configuration.load("configs/tiny.py", ["--config.mesh.data=1"])
    return sharding.make_mesh(config, (), jax.devices()[:1])


@pytest.mark.parametrize("tokens", [16, 150, 512, 5000])
@pytest.mark.parametrize("count", [1, 3, 5, 12, 32, 33])
def test_pieces_hold_each_row_once(count, tokens):
    found = list(inference.pieces(count, tokens))
    rows = [row for part, _ in found for row in range(count)[part]]
    assert rows == list(range(count))
    assert len({of for _, of in found}) <= 3
    # Of the rows that are computed, at least three quarters are answers.
    assert all(4 * len(range(count)[part]) >= 3 * of for part, of in found)
    assert all(of * tokens <= 2048 or of == 1 for _, of in found)


@pytest.mark.parametrize("count", [1, 3, 5, 32])
def test_rows_are_answered_in_their_order(mesh, count):
    shapes = []

    def step(params, batch):
        shapes.append(batch["input_ids"].shape)
        return {"sums": params + batch["input_ids"].sum(axis=1)}

    rows = np.arange(count * 300, dtype=np.int32).reshape(count, 300)
    ask = inference.compile_predict(step, np.int32(7), mesh, 32)
    found = ask({"input_ids": rows})["sums"]
    np.testing.assert_array_equal(found, 7 + rows.sum(axis=1))
    assert all(3 * size <= 4 * count for size, _ in shapes)
