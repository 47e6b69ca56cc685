"""Runs whose products have 8 bits: micro-batches, devices, layers in a loop, resume."""

import shutil

import jax
import numpy as np
import pytest
from contract_tasks import create
from runs import here, losses, run

from bert_jax.training import sharding
from bert_jax.training.step import Step
from tests.contract_test import SPLIT, saved

FP8 = "--config.model.products=fp8"
# Of a layer: four of attention, two of the feed-forward.
PRODUCTS = (
    "attention/key",
    "attention/output",
    "attention/query",
    "attention/value",
    "intermediate",
    "output",
)


def one_step(task, micro_batches=1, devices=1):
    mesh = sharding.make_mesh(task.config, devices=jax.devices()[:devices])
    program = Step(task, mesh)
    batch = next(task.batches(0, slice(None), 0))
    placed = sharding.place_batch(batch, mesh, task.phase_at(0).batch_size, 1)
    state = program.first_state()
    compiled = program.trace(state, placed, micro_batches).lower().compile()
    given = (placed, program.seeds.array, np.float32(1e-3), {})
    for _ in range(2):
        state, metrics = compiled(state, *given)
    return jax.device_get((state, metrics))


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(**fields):
        own = {"train.num_steps": 4, "train.batch_size": 8, "model.products": "fp8"}
        own |= {"model.hidden_dropout_prob": 0.0}
        own |= {"model.attention_probs_dropout_prob": 0.0}
        return create("pretraining", own | fields)

    return make


@pytest.mark.slow
def test_micro_batches_devices_and_layers_in_a_loop(task):
    """They round differently, by less than 8 bits can show in a step.

    The largest numbers are those of any micro-batch (models/float8_test.py has them
    exactly) and of any device.
    """
    two_layers = {"model.num_hidden_layers": 2}
    state, metrics = one_step(task(**two_layers))
    changed = task(**SPLIT, **two_layers, **{"model.scan_layers": True})
    parts, of_parts = one_step(changed, micro_batches=2, devices=8)
    np.testing.assert_allclose(of_parts["loss"], metrics["loss"], rtol=1e-3)
    np.testing.assert_allclose(of_parts["grad_norm"], metrics["grad_norm"], rtol=0.02)
    one, loop = state.amax["history"], parts.amax["history"]
    assert one.shape == loop.shape == (2 * len(PRODUCTS), 2, 16)
    for history in (one, loop):
        assert (history[:, :, :2] > 0).all() and not history[:, :, 2:].any()
    # By layer and product, and by product and layer. The last layer of those that
    # follow each other is computed at the predictions alone, but for two products.
    apart, stacked = one.reshape(2, 6, 2, 16), loop.reshape(6, 2, 2, 16)
    np.testing.assert_allclose(stacked[:, 0, 0, 1], apart[0, :, 0, 1], rtol=1e-2)
    np.testing.assert_allclose(stacked[:, 0, 0], apart[0, :, 0], rtol=0.05)
    for product in ("attention/key", "attention/value"):
        place = PRODUCTS.index(product)
        found, expected = stacked[place, 1, 0, 1], apart[1, place, 0, 1]
        np.testing.assert_allclose(found, expected, rtol=1e-2)


@pytest.mark.slow
def test_run_resumes_with_its_largest_numbers(micro, plain, tmp_path):
    """To the last bit, after its last checkpoint is gone, as after a kill."""
    straight, again = tmp_path / "straight", tmp_path / "again"
    run(micro, straight, FP8)
    shutil.copytree(straight, again)
    shutil.rmtree(again / "checkpoints" / "20")
    _, err = run(micro, again, FP8)
    assert "resuming at step 10 of" in err
    expected = losses(straight)
    np.testing.assert_array_equal(losses(again), expected)
    assert not np.array_equal(expected, losses(plain))
    (_, found), (_, same) = saved(again), saved(straight)
    assert "amax" in found
    assert jax.tree.structure(found) == jax.tree.structure(same)
    jax.tree.map(np.testing.assert_array_equal, found, same)


def test_model_without_such_products(tmp_path):
    _, err = here(
        *("--config=configs/elmo.py:size=tiny", f"--workdir={tmp_path / 'run'}"),
        FP8,
        status=2,
    )
    assert err.splitlines()[-1].startswith("error: config.model.products=fp8: ")
