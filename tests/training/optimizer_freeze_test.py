"""Parameters that do not learn: no gradient, moments and decay, for any optimizer."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.training import optimizer
from bert_jax.training.step import init_state, train_step
from bert_jax.training.transforms import accumulate, beside, only
from configs import tiny
from tests.micro import error_line

CHOICES = {
    "frozen": {"frozen": ("bert/layer_0", "head")},
    "trainable": {"trainable": (r"layer_\d\d", "/layer_1/")},
    "both": {"trainable": ("bert",), "frozen": ("bert/layer_0",)},
}


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


def loss(p, batch, key):
    total = sum(jnp.sum(x**2) for x in jax.tree.leaves(p["bert"]))
    rest = sum(jnp.sum(x**3) for x in jax.tree.leaves(p))
    return {"loss": (50.0 * total + rest) * jnp.sum(batch["x"])}


def gradient_of(loss, learns, parts):
    def make(loss):
        return accumulate(loss, lambda batch: {"loss": jnp.sum(batch["x"])}, parts)

    return only(make, loss, learns)


def three_steps(config, start, held=None):
    """The state before and after three steps, and their gradients' norms."""
    make = optimizer.make_optimizer(config)
    learns = optimizer.trainable_filter(config.optimizer, start)
    gradient = gradient_of(beside(loss, held or {}), learns, 2)
    step = jax.jit(functools.partial(train_step, gradient=gradient, optimizer=make))
    first = state = init_state(start, make, learns=learns)
    norms = []
    for _ in range(3):
        state, metrics = step(state, {"x": jnp.ones(4)}, jax.random.key(0), 0.1)
        norms.append(metrics["grad_norm"])
    return first, state, norms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "choice"),
    [("lamb", "both"), *(("adamw", choice) for choice in CHOICES)],
)
def test_frozen_parts_stay_and_the_rest_learns(name, choice):
    """As if the frozen parameters were no parameters: the same clipping too."""
    whole = params()
    rest = {"bert": {n: whole["bert"][n] for n in ("layer_01", "layer_1")}}
    held = {"bert": {"layer_0": whole["bert"]["layer_0"]}, "head": whole["head"]}
    first, some, norms = three_steps(config(name=name, **CHOICES[choice]), whole)
    before, alone, expected = three_steps(config(name=name), rest, held)
    np.testing.assert_allclose(norms, expected, rtol=1e-6)
    ours, theirs = (jax.tree.map(jnp.shape, x.opt_state) for x in (some, alone))
    assert ours == theirs
    for layer in ("layer_01", "layer_1"):
        found = some.params["bert"][layer]["kernel"]
        other = alone.params["bert"][layer]["kernel"]
        np.testing.assert_allclose(found, other, rtol=1e-6)
        assert np.any(found != before.params["bert"][layer]["kernel"])
    jax.tree.map(
        np.testing.assert_array_equal,
        (some.params["bert"]["layer_0"], some.params["head"]),
        (first.params["bert"]["layer_0"], first.params["head"]),
    )


def test_gradients_of_frozen_parameters_are_not_computed():
    def products(**fields):
        def apply(p, batch, key):
            hidden = batch["x"] @ p["bert"]["layer_0"]["kernel"]
            return {"loss": jnp.sum(jnp.tanh(hidden) @ p["head"]["kernel"])}

        start = {"bert": {"layer_0": {"kernel": jnp.ones((3, 4))}}}
        start["head"] = {"kernel": jnp.ones((4, 2))}
        own = config(**fields)
        make = optimizer.make_optimizer(own)
        learns = optimizer.trainable_filter(own.optimizer, start)
        gradient = gradient_of(apply, learns, 1)
        step = functools.partial(train_step, gradient=gradient, optimizer=make)
        state = init_state(start, make, learns=learns)
        given = (state, {"x": jnp.ones((2, 3))}, jax.random.key(0), 0.1)
        return str(jax.make_jaxpr(step)(*given)).count("dot_general")

    # Two products forward, and one for the head's gradient. The layer's takes two more.
    assert (products(), products(trainable=("head",))) == (5, 3)


def test_names_must_match_something():
    def learns(**fields):
        return optimizer.trainable_filter(config(**fields).optimizer, params())

    for fields, said in (
        ({"frozen": ("bert/layer",)}, "frozen: 'bert/layer' names no parameter "),
        ({"trainable": ("head", "lora")}, "trainable: 'lora' names no parameter "),
    ):
        assert said in error_line(learns, **fields)
    assert learns() is None
    chosen = [n for n in ("layer_0", "layer_01") if learns(trainable=("layer_0",))(n)]
    assert chosen == ["layer_0"]  # as 1 is not found in 10, nor 1/ in 11/
    assert not learns(trainable=("1/",))("layer_01/kernel")
    for pattern in ("(", "(?i)bias"):  # flags are for a part: (?i:bias)
        flag = f"--config.optimizer.trainable=({pattern!r},)"
        line = error_line(configuration.load_config, "configs/tiny.py", [flag])
        assert re.search("trainable.*not a regular expression", line)
