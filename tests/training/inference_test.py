"""Rows are computed in pieces on a CPU, and answered as if together."""

import jax
import numpy as np
import pytest
from micro import answerer

from bert_jax.config import configuration
from bert_jax.data.rows import BatchSize, Feature
from bert_jax.tasks.task import Predictor
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


class Sums(Predictor):
    """Answers a row of so many ids with their sum."""

    max_seq_length = 300

    def __init__(self):
        self.shapes = []

    def parse(self, row):
        raise NotImplementedError

    def encode(self, examples, split):
        return [Feature(n, {"input_ids": ids}) for n, ids in enumerate(examples)]

    def outputs(self, params, batch):
        self.shapes.append(batch["input_ids"].shape)
        return {"sum": params + batch["input_ids"].sum(axis=1)}

    def decode(self, examples, features, outputs):
        return [{"sum": int(output["sum"])} for output in outputs]


@pytest.mark.parametrize("count", [1, 3, 5, 32])
def test_rows_are_answered_in_their_order(count):
    sums = Sums()
    asked = answerer(sums, np.int32(7), rows=32, width=128)
    rows = np.random.default_rng(0).integers(1, 99, (count, 300))
    assert asked.start(list(rows))() == [{"sum": 7 + row.sum()} for row in rows]
    assert all(3 * size <= 4 * count for size, _ in sums.shapes)
    assert all(size <= asked.size.at(300) < 16 for size, _ in sums.shapes)
    some = [row[: 1 + 7 * n] for n, row in enumerate(rows)]
    assert asked.start(some)() == [{"sum": 7 + row.sum()} for row in some]


def test_only_a_single_cpu_computes_in_pieces(mesh):
    assert inference.batch_size(mesh, 32, 768) == BatchSize(16, 768)
    assert inference.batch_size(mesh, 3, 768) == BatchSize(3, 768)
    two = sharding.make_mesh(
        configuration.load("configs/tiny.py", ["--config.mesh.data=2"]),
        (),
        jax.devices()[:2],
    )
    assert inference.batch_size(two, 31, 768) == BatchSize(32)
