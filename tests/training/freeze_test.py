"""Frozen parameters: without gradient, moments and decay, whatever the optimizer."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.training import optimizer
from configs import tiny

NAMES = ("bert_adam", "adamw", "lamb", "adagrad", "openai_adam")


def params():
    rng = np.random.default_rng(0)
    return {
        "bert": {
            name: {"kernel": jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)}
            for name in ("layer_0", "layer_01", "layer_1")
        },
        "head": {"bias": jnp.asarray(rng.normal(size=4), jnp.float32)},
    }


def config(**fields) -> ConfigDict:
    found = tiny.get_config("plain")
    found.optimizer.warmup_steps, found.optimizer.warmup_fraction = 0, 0.0
    found.optimizer.learning_rate, found.optimizer.weight_decay = 0.1, 0.1
    found.optimizer.update(fields)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_frozen_parts_stay_and_the_rest_learns(name):
    """As if the frozen parameters were no parameters: the same clipping too."""
    whole, prefixes = params(), ("bert/layer_0", "head")
    rest = {"bert": {n: whole["bert"][n] for n in ("layer_01", "layer_1")}}

    def loss(p):
        total = sum(jnp.sum(x**2) for x in jax.tree.leaves(p["bert"]))
        return 50.0 * total + sum(jnp.sum(x**3) for x in jax.tree.leaves(p))

    some = optimizer.make_optimizer(config(name=name, frozen=prefixes))
    alone = optimizer.make_optimizer(config(name=name))
    held = optimizer.loss_of_the_rest(loss, prefixes)
    state, other = some.init(whole), alone.init(rest)
    moments = [x.shape for x in jax.tree.leaves(state) if x.shape]
    assert moments == [x.shape for x in jax.tree.leaves(other) if x.shape]
    first = whole
    for _ in range(3):
        grads = jax.grad(held)(whole)
        assert not np.any(grads["bert"]["layer_0"]["kernel"])
        updates, state = some.update(grads, state, whole, learning_rate=0.1)
        whole = optax.apply_updates(whole, updates)
        updates, other = alone.update(
            jax.grad(loss)(rest), other, rest, learning_rate=0.1
        )
        rest = optax.apply_updates(rest, updates)
    for name in ("layer_01", "layer_1"):
        np.testing.assert_allclose(
            whole["bert"][name]["kernel"], rest["bert"][name]["kernel"], rtol=1e-6
        )
        assert np.any(whole["bert"][name]["kernel"] != first["bert"][name]["kernel"])
    np.testing.assert_array_equal(
        whole["bert"]["layer_0"]["kernel"], first["bert"]["layer_0"]["kernel"]
    )
    np.testing.assert_array_equal(whole["head"]["bias"], first["head"]["bias"])


def test_prefix_must_name_something_and_leave_something():
    wrong = optimizer.make_optimizer(config(frozen=("bert/layer",)))
    with pytest.raises(UserError, match="'bert/layer' names no parameter "):
        wrong.init(params())
    with pytest.raises(UserError, match="names all parameters"):
        optimizer.make_optimizer(config(frozen=("bert", "head"))).init(params())
