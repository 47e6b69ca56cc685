"""GPT's schedules and Adam against a transcription of the published opt.py."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.training import optimizer
from tests.close import assert_close
from tests.training.optimizer_config import make_config


def published(shape, x, warmup):
    """opt.py's warmup_linear and warmup_cosine."""
    s = float(x <= warmup)
    if shape == "openai_linear":
        return (s * (x / warmup) + (1 - s)) * (1 - x)
    return s * (x / warmup) + (1 - s) * (0.5 * (1 + math.cos(math.pi * x)))


def config(shape="openai_linear", **fields):
    given = {"warmup_steps": 0, "warmup_fraction": 0.05, "eps": 1e-8, **fields}
    return make_config(name="openai_adam", schedule=shape, **given)


@pytest.mark.parametrize("shape", ["openai_linear", "openai_cosine"])
def test_schedules(shape):
    schedule = optimizer.learning_rate_schedule(config(shape, num_steps=200))
    expected = [1e-2 * published(shape, t / 200, 0.05) for t in range(201)]
    np.testing.assert_allclose(schedule(jnp.arange(201)), expected, atol=1e-8)
    counted = config(shape, num_steps=200, warmup_steps=10, warmup_fraction=0.0)
    other = optimizer.learning_rate_schedule(counted)
    np.testing.assert_allclose(other(jnp.arange(201)), expected, atol=1e-8)
    at_once = config(shape, num_steps=200, warmup_fraction=0.0)
    assert optimizer.learning_rate_schedule(at_once)(0) == pytest.approx(1e-2)


def test_updates_are_those_of_the_published_adam():
    own = config(num_steps=40, clip_norm=1.0)
    rng = np.random.default_rng(0)
    params = {
        "kernel": rng.normal(size=(5, 3)),
        "bias": rng.normal(size=3),
        "word_embeddings": {"embedding": rng.normal(size=(7, 3))},
        "layer_norm": {"scale": rng.normal(size=3)},
    }
    ours = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    maker, rates = optimizer.make_optimizer(own), optimizer.learning_rates(own)
    state, update = maker.init(ours), jax.jit(maker.update)
    m = jax.tree.map(np.zeros_like, params)
    v = jax.tree.map(np.zeros_like, params)
    for t in range(12):
        grads = jax.tree.map(lambda x: 0.5 * rng.normal(size=x.shape), params)
        given = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), grads)
        updates, state = update(given, state, ours, learning_rate=rates[t])
        ours = optax.apply_updates(ours, updates)
        norm = math.sqrt(sum(float(np.sum(g * g)) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g, n=norm: g * min(1.0, 1.0 / n), grads)
        rate = 1e-2 * math.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))
        rate *= published("openai_linear", t / 40, 0.05)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)

        def step(p, m, v, rate=rate):
            decay = 0.01 * p if p.ndim > 1 else 0.0  # vector_l2 is off
            return p - rate * (m / (np.sqrt(v) + 1e-8) + decay)

        params = jax.tree.map(step, params, m, v)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(params), strict=True):
        assert_close(one, other)
