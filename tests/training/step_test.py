"""The step against hand algebra: unequal weights, micro-batches, devices, keys."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.training import step
from bert_jax.training.step import init_state
from bert_jax.training.transforms import accumulate, uneven_weights


def loss(params, batch, key):
    """Two named losses, summed over rows whose weights differ."""
    noise = 0.0 if key is None else 0.1 * jax.random.normal(key, ())
    error = (batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2
    half = jnp.abs(batch["x"] @ params["w"] + noise)
    return {
        "squares": jnp.sum(batch["weight"] * error),
        "slopes": jnp.sum(half),
    }


def loss_weights(batch):
    rows = jnp.asarray(len(batch["x"]), jnp.float32)
    return {"squares": jnp.sum(batch["weight"]), "slopes": rows}


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(8, 3)).astype(np.float32),
        "y": rng.normal(size=8).astype(np.float32),
        "weight": np.array([0, 0, 1, 5, 2, 0, 0, 3], np.float32),
    }


def take(batch, micro_batches=1, seed=0, at=0):
    optimizer = optax.sgd(0.1)
    params = {"w": jnp.array([0.5, -1.0, 2.0]), "b": jnp.array(0.3)}
    state = init_state(params, optimizer)._replace(step=jnp.int32(at))
    gradient = accumulate(loss, loss_weights, micro_batches)
    function = functools.partial(
        step.train_step, gradient=gradient, optimizer=optimizer
    )
    return jax.jit(function)(state, batch, jax.random.key(seed), 0.1 * (at + 1))


def test_everything_that_a_run_carries_is_saved():
    """By arrays with a number of their own each."""
    params, optimizer = {"w": jnp.zeros(3)}, optax.adam(0.1)
    empty = init_state(params, optimizer)
    assert all(map(jax.tree.leaves, empty))
    leaves, tree = jax.tree.flatten(empty)
    numbered = [jnp.full(x.shape, n, x.dtype) for n, x in enumerate(leaves, 1)]
    state = jax.tree.unflatten(tree, numbered)
    restored = empty.restored(state.items(), 1)
    assert jax.tree.structure(restored) == tree
    jax.tree.map(np.testing.assert_array_equal, restored, state)


def numpy_gradients(batch, noise):
    w, b = np.array([0.5, -1.0, 2.0]), 0.3
    x, y, weight = (batch[name].astype(np.float64) for name in ("x", "y", "weight"))
    error = x @ w + b - y
    squares = (weight * error**2).sum() / weight.sum()
    slopes = np.abs(x @ w + noise).mean()
    grad_b = (2 * weight * error).sum() / weight.sum()
    grad_w = (2 * weight * error) @ x / weight.sum()
    grad_w += (np.sign(x @ w + noise)[:, None] * x).mean(axis=0)
    return squares, slopes, grad_w, grad_b


def test_step_by_hand(batch):
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 0)
    noise = 0.1 * float(jax.random.normal(key, ()))
    squares, slopes, grad_w, grad_b = numpy_gradients(batch, noise)
    state, metrics = take(batch)
    assert int(state.step) == 1
    np.testing.assert_allclose(metrics["squares"], squares, rtol=1e-5)
    np.testing.assert_allclose(metrics["slopes"], slopes, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], squares + slopes, rtol=1e-5)
    norm = np.sqrt((grad_w**2).sum() + grad_b**2)
    np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-5)
    np.testing.assert_allclose(metrics["learning_rate"], 0.1, rtol=1e-6)
    moved = np.array([0.5, -1.0, 2.0]) - 0.1 * grad_w
    np.testing.assert_allclose(state.params["w"], moved, rtol=1e-5)
    np.testing.assert_allclose(state.params["b"], 0.3 - 0.1 * grad_b, rtol=1e-5)


def test_accumulation_over_micro_batches_divides_once_by_unequal_weights(
    batch, monkeypatch
):
    # Without noise: each part has a separate key.
    monkeypatch.setattr(jax.random, "normal", lambda key, shape: jnp.zeros(shape))
    whole, metrics = take(batch)
    cut, cut_metrics = take(batch, micro_batches=4)
    for name in metrics:
        np.testing.assert_allclose(cut_metrics[name], metrics[name], rtol=1e-5)
    np.testing.assert_allclose(cut.params["w"], whole.params["w"], rtol=1e-5)


@pytest.mark.slow
def test_weight_that_is_no_sum_over_rows_is_found(batch):
    def weights(rows):
        return loss_weights(rows) | {"mean": jnp.float32(1)}

    found = jax.jit(lambda rows: uneven_weights(weights, rows, 4))(batch)
    assert {name for name, is_uneven in found.items() if is_uneven} == {"mean"}


def test_randomness_follows_seed_and_step_only(batch):
    draws = [
        float(take(batch, seed=seed, at=at)[1]["slopes"])
        for seed, at in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_batch_without_weight_gives_zero_and_no_nan(batch):
    batch["weight"] = np.zeros(8, np.float32)
    state, metrics = take(batch)
    assert float(metrics["squares"]) == 0.0
    assert np.isfinite(jax.flatten_util.ravel_pytree(state.params)[0]).all()
