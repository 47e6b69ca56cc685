"""Runs whose products have 8 bits: micro-batches, devices, layers in a loop, resume."""

import contract_runs
import jax
import numpy as np
import pytest
from contract_tasks import create
from runs import finish, here, losses, run_killed, start

from bert_jax.training import sharding
from bert_jax.training.step import Step
from tests.contract_test import SPLIT, saved

FP8 = "--config.model.products=fp8"


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
def test_largest_numbers_of_any_micro_batch(task):
    whole, metrics = one_step(task())
    parts, of_parts = one_step(task(), micro_batches=2)
    np.testing.assert_allclose(of_parts["loss"], metrics["loss"], rtol=1e-3)
    # Two heads' three, the output's and the feed-forward's two of one layer.
    one, two = whole.amax["history"], parts.amax["history"]
    assert one.shape == (6, 2, 16) and (one[:, :, :2] > 0).all()
    assert not one[:, :, 2:].any()
    np.testing.assert_allclose(two[:, 0], one[:, 0], rtol=0.05)
    # The inputs of the first layer in the first step: nothing was rounded before.
    query = [
        "attention/key",
        "attention/output",
        "attention/query",
        "attention/value",
        "intermediate",
        "output",
    ].index("attention/query")
    np.testing.assert_array_equal(one[query, 0, 1], two[query, 0, 1])


@pytest.mark.slow
def test_devices_and_layers_in_a_loop(task):
    """They round differently, by less than 8 bits can show in a step."""
    two_layers = {"model.num_hidden_layers": 2}
    state, metrics = one_step(task(**two_layers))
    split, on_eight = one_step(task(**SPLIT, **two_layers), devices=8)
    loop, in_loop = one_step(task(**two_layers, **{"model.scan_layers": True}))
    for found in (on_eight, in_loop):
        np.testing.assert_allclose(found["loss"], metrics["loss"], rtol=1e-3)
        np.testing.assert_allclose(found["grad_norm"], metrics["grad_norm"], rtol=0.02)
    one, eight, loop = (x.amax["history"] for x in (state, split, loop))
    np.testing.assert_allclose(eight[:, 0, 1], one[:, 0, 1], rtol=1e-2)
    # By layer and product, and by product and layer. The last layer of those that
    # follow each other is computed at the predictions alone.
    first, stacked = one[:6, 0, 1], loop.reshape(6, 2, 2, 16)[:, 0, 0, 1]
    np.testing.assert_allclose(stacked, first, rtol=1e-2)


@pytest.mark.slow
def test_killed_run_resumes_as_if_it_had_not_been(micro, plain, tmp_path):
    task, given = "bert_jax.tasks.pretraining:Pretraining", (FP8, contract_runs.OFTEN)
    finish(start(f"--config={micro}", f"--workdir={tmp_path / 'straight'}", *given))
    run_killed(task, micro, tmp_path / "killed", *given)
    killed = f"--workdir={tmp_path / 'killed'}"
    _, err = finish(start(f"--config={micro}", killed, *given))
    assert "resuming at step 10 of" in err
    expected = losses(tmp_path / "straight")
    np.testing.assert_array_equal(losses(tmp_path / "killed"), expected)
    assert not np.array_equal(expected, losses(plain))
    (_, found), (_, same) = saved(tmp_path / "killed"), saved(tmp_path / "straight")
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
