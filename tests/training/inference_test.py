"""Rows are answered in chunks as if together, and results of several seeds apart."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import configuration
from bert_jax.data.rows import BatchSize, Feature
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.heads import init_model
from bert_jax.tasks.task import Predictor, Results, Task
from bert_jax.training import inference, sharding
from bert_jax.training.inference import Evaluator
from bert_jax.training.seeds import Seeds
from configs import tiny
from tests.micro import answerer, initial_params, small_config


@pytest.fixture(scope="module")
def mesh():
    config = configuration.load_config("configs/tiny.py", ["--config.mesh.data=1"])
    return sharding.make_mesh(config, (), jax.devices()[:1])


@pytest.mark.parametrize("whole", [1, 4, 13, 16])
@pytest.mark.parametrize("count", [1, 3, 5, 12, 32, 33])
def test_pieces_hold_each_row_once(count, whole):
    found = list(inference.split_batch(count, whole))
    rows = [row for part, _ in found for row in range(count)[part]]
    assert rows == list(range(count))
    assert len({of for _, of in found}) <= 3
    # At least three quarters of the computed rows are answers.
    assert all(4 * len(range(count)[part]) >= 3 * of for part, of in found)
    assert all(of <= whole for _, of in found)


class Sums(Predictor):
    """Answers a row of so many ids with their sum."""

    max_seq_length = 300

    def __init__(self):
        self.shapes = []

    def parse_row(self, row):
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
    assert all(size <= asked.size.max_rows(300) < 16 for size, _ in sums.shapes)
    some = [row[: 1 + 7 * n] for n, row in enumerate(rows)]
    assert asked.start(some)() == [{"sum": 7 + row.sum()} for row in some]


def test_sub_batches_are_of_a_single_cpu(mesh):
    assert inference.batch_size(mesh, 32, 768) == BatchSize(16, 768)
    assert inference.batch_size(mesh, 3, 768) == BatchSize(3, 768)
    config = configuration.load_config("configs/tiny.py", ["--config.mesh.data=2"])
    two = sharding.make_mesh(config, (), jax.devices()[:2])
    assert inference.batch_size(two, 31, 768) == BatchSize(32)


def test_parameters_are_rounded_once_and_outputs_are_the_same():
    """Kernels only. Embeddings, LayerNorm and the head's products are in float32."""
    config = small_config(dtype="bfloat16")
    model = BertWithHeads(config, ("sequence_classification",), labels=3)
    params = initial_params(functools.partial(init_model, model))
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 50, (4, 9)).astype(np.int32)
    batch = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}

    def outputs(params, batch):
        return model.apply({"params": params}, *batch.values())

    rounded = inference.round_kernels(outputs, params, batch)
    dtypes = {
        "/".join(key.key for key in path): str(leaf.dtype)
        for path, leaf in jax.tree.leaves_with_path(rounded)
    }
    kernels = {name for name in dtypes if name.endswith("/kernel")}
    head = "sequence_classification/kernel"
    assert len(kernels) == 2 * 6 + 2 and head in kernels
    assert {dtypes[name] for name in kernels - {head}} == {"bfloat16"}
    others = dtypes.keys() - kernels
    kept = [name for name in (*others, head) if "Norm" in name or "embed" in name]
    assert {dtypes[name] for name in kept} == {"float32"}
    assert dtypes[head] == "float32"
    before, after = jax.jit(outputs)(params, batch), jax.jit(outputs)(rounded, batch)
    for one, other in zip(*map(jax.tree.leaves, (before, after)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def make(monkeypatch):
    """An evaluator of two seeds whose outputs are their parameters, without a model."""

    def evaluator(**options):
        config = tiny.get_config("plain")
        config.train.seeds = 2
        task = mock.create_autospec(Task, instance=True)
        task.fitted, task.dev_splits = {"threshold": 0.0}, ("dev",)
        task.outputs = lambda params, batch: params

        def with_fitted(fitted):
            def results(split, fetched, *, learns):
                value = float(fetched[0]) if learns else fitted["threshold"]
                return Results({"score": value}, {"threshold": value})

            return mock.Mock(results=results)

        task.with_fitted = with_fitted
        fetch = lambda self, params, split, now: [params]  # noqa: E731
        monkeypatch.setattr(Evaluator, "fetch", fetch)
        mesh = sharding.make_mesh(config)
        return Evaluator(task, Seeds(config), mesh, **options)

    return evaluator


def scores(evaluator, split, now=1):
    results = evaluator.results(jnp.array([3.0, 4.0]), split, now)
    return [each.scores["score"] for each in results]


def test_evaluator_keeps_each_seed_s_fitted_values_if_it_learns(make):
    evaluator = make()
    assert scores(evaluator, "test") == [0.0, 0.0]
    assert scores(evaluator, "dev") == [3.0, 4.0]
    assert scores(evaluator, "test", now=2) == [3.0, 4.0]
    assert scores(make(learns=False), "dev") == [0.0, 0.0]
