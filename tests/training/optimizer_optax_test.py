"""Optax's optimizers as entries of OPTIMIZERS: each takes ten steps of ours."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from bert_jax.training import optimizer as optimizers
from bert_jax.training.step import init_state, train_step
from bert_jax.training.transforms import Gradients
from tests.training.optimizer_config import make_config

# Each is a function of a schedule. Two are left out: the state of lbfgs' search has no
# form without parameters, and rprop's begins with a rate, which a step brings.
RULES = {
    name: getattr(optax, name)
    for name in (
        *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw"),
        *("adamw", "adan", "amsgrad", "fromage", "lamb", "lars", "lion", "nadam"),
        *("nadamw", "novograd", "optimistic_gradient_descent", "radam", "rmsprop"),
        *("sgd", "sign_sgd", "yogi"),
    )
} | {
    # They take a number, not a schedule: the step's.
    "polyak_sgd": lambda rate: optax.polyak_sgd(rate(0)),
    "sm3": lambda rate: optax.sm3(rate(0)),
    "acprop": contrib.acprop,
    "ademamix": contrib.ademamix,
    "cocob": contrib.cocob,
    "dadapt_adamw": contrib.dadapt_adamw,
    "dowg": contrib.dowg,
    "muon": contrib.muon,
    "prodigy": contrib.prodigy,
    "schedule_free_adamw": contrib.schedule_free_adamw,
    # They ask for the loss, and for its value elsewhere.
    "momo": contrib.momo,
    "momo_adam": contrib.momo_adam,
    "reduce_on_plateau": lambda rate: optax.chain(
        optax.sgd(rate), contrib.reduce_on_plateau(patience=3)
    ),
}
TARGET = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def loss(params, batch):
    return jnp.sum((params["kernel"] @ batch["x"] - TARGET @ batch["x"]) ** 2)


def gradient(params, batch, key):
    del key
    value, grads = jax.value_and_grad(loss)(params, batch)
    return Gradients(grads, {"loss": value})


@pytest.mark.parametrize("name", RULES)
def test_optimizer_takes_ten_steps(name, monkeypatch):
    make = RULES[name]
    monkeypatch.setitem(optimizers.OPTIMIZERS, name, lambda _, rate, mask: make(rate))
    config = make_config(name=name, clip_norm=0.0)
    rule = optimizers.make_optimizer(config)
    params = {"kernel": jnp.zeros((3, 4))}
    batch = {"x": jnp.eye(4) + 0.1}
    state = init_state(params, rule)
    # As `abstract_state` does, to place the moments as their parameters.
    optax.tree.map_params(rule, lambda x: x, jax.eval_shape(rule.init, params))
    step = jax.jit(
        lambda state: train_step(state, batch, jax.random.key(0), 0.05, gradient, rule)
    )
    losses = []
    for _ in range(10):
        state, metrics = step(state)
        losses.append(float(metrics["loss"]))
    evaluated = loss(state.evaluation_params(), batch)
    assert np.all(np.isfinite(losses))
    assert float(evaluated) < losses[0]
