"""The step against hand algebra: unequal weights, micro-batches, devices, keys."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax import tasks
from bert_jax.models.initial import InitialParams
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import sharding, step
from bert_jax.training.step import Step, init_state
from bert_jax.training.transforms import accumulate, uneven_weights
from configs import base


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


# The state before the first step: its values depend on the seed alone.


def program_of(devices=1, seeds=1, **mesh):
    config = base.get_config()
    config.model.update(num_hidden_layers=1, hidden_size=32, num_attention_heads=2)
    config.model.update(intermediate_size=64, vocab_size=101)
    config.train.batch_size = config.evaluate.batch_size = 8
    config.seed, config.train.seeds = 3, seeds
    config.mesh.update(data=-1, **mesh)
    grid = sharding.make_mesh(config, devices=jax.devices()[:devices])
    return Step(tasks.create_task(config), grid)


def state_of(*arguments, **fields):
    program = program_of(*arguments, **fields)
    state = program.first_state()
    expected = sharding.shardings_of(program.seeds.abstract(program.abstract))
    assert sharding.shardings_of(state) == expected
    return jax.device_get(state)


def assert_equal(one, other):
    for (path, x), y in zip(
        jax.tree.leaves_with_path(one), jax.tree.leaves(other), strict=True
    ):
        np.testing.assert_array_equal(x, y, jax.tree_util.keystr(path))


@pytest.fixture(scope="module")
def alone():
    return state_of()


def test_first_state_is_the_same_on_a_mesh(alone):
    assert_equal(state_of(8, fsdp=2, tensor=2), alone)


def test_first_states_of_seeds_are_those_of_their_runs(alone):
    both = state_of(seeds=2)
    assert_equal(jax.tree.map(lambda x: x[0], both), alone)
    words = both.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    assert not np.array_equal(words[0], words[1])


@pytest.mark.parametrize("seeds", [1, 2])
def test_initial_parameters_are_traced_once(seeds, monkeypatch):
    """For the shapes and for the values, as the first trace of a large model takes
    seconds."""
    calls, init = [], Pretraining.init_params
    monkeypatch.setattr(
        Pretraining, "init_params", lambda *given: (calls.append(0), init(*given))[1]
    )
    program_of(seeds=seeds).first_state()
    assert len(calls) == 1


def test_values_are_those_of_one_program(alone):
    task = program_of().task
    draw = jax.jit(lambda: nn.meta.unbox(task.init_params(jax.random.key(3))))
    assert_equal(draw(), alone.params)


@pytest.mark.parametrize("seeds", [1, 2])
def test_parameters_of_ones_own_may_be_any_tree(seeds, monkeypatch):
    def init(task, key):
        table = jax.random.normal(key, (4, 8))
        boxed = nn.LogicallyPartitioned(table, (None, "embed"))
        own = {"table": boxed, "none": {}, "one": jnp.ones(()), "parts": [table, None]}
        return {"own": nn.FrozenDict(own)}

    monkeypatch.setattr(Pretraining, "init_params", init)
    own = state_of(seeds=seeds).params["own"]
    keys = jax.vmap(jax.random.key)(jnp.arange(3, 3 + seeds))
    expected = np.squeeze(jax.vmap(lambda key: jax.random.normal(key, (4, 8)))(keys))
    np.testing.assert_array_equal(own["table"], expected)
    np.testing.assert_array_equal(own["parts"][0], expected)
    assert isinstance(own, nn.FrozenDict) and own["none"] == {}
    assert np.shape(own["one"]) == (() if seeds == 1 else (2,))


@pytest.mark.parametrize("seeds", [1, 2])
def test_parameters_that_were_read_are_not_drawn(seeds, monkeypatch):
    """Each seed starts from them, and draws its own values of the others."""
    sizes, draw = [], InitialParams.draw

    def counting(*given):
        drawn = draw(*given)
        sizes.append(len(drawn))
        return drawn

    monkeypatch.setattr(InitialParams, "draw", counting)
    program = program_of(8, seeds, fsdp=2)
    given = dict(program.abstract.params)
    given["bert"] = jax.tree.map(
        lambda x: jax.device_put(np.full(x.shape, 0.5, x.dtype), x.sharding),
        given["bert"],
    )
    new = jax.device_get(program.first_state(given).params)
    assert sizes == [
        len(jax.tree.leaves(program.abstract.params))
        - len(jax.tree.leaves(given["bert"]))
    ]
    assert all((x == 0.5).all() for x in jax.tree.leaves(new["bert"]))
    fresh = jax.device_get(program.first_state().params)
    assert_equal(new["masked_lm"], fresh["masked_lm"])
