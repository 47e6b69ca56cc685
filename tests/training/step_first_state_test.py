"""The state before the first step: its values depend on the seed alone."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.models.initial import InitialParams
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import sharding
from bert_jax.training.step import Step
from configs import base


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
