"""StableAdamW against its algorithm in NumPy, and its schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.families.modernbert.optimizer import stable_adamw
from bert_jax.training.optimizer import learning_rates
from tests.close import assert_close

FIELDS = ConfigDict({"beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.3})


def written_down(params, gradients, rates, decayed):
    """Wortsman et al. 2023, algorithm 2, in float64: v and u as there, their bias
    corrected as Adam's is (Kingma and Ba 2015, section 3)."""
    values = {name: np.float64(x) for name, x in params.items()}
    v = {name: 0.0 for name in params}
    u = {name: 0.0 for name in params}
    for t, (given, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        for name, value in values.items():
            g = np.float64(given[name])
            v[name] = 0.9 * v[name] + 0.1 * g
            u[name] = 0.98 * u[name] + 0.02 * g**2
            mean, square = v[name] / (1 - 0.9**t), u[name] / (1 - 0.98**t)
            ratio = np.sqrt(np.mean(g**2 / np.maximum(square, 1e-6**2)))
            own = rate / max(1, ratio)
            decay = 0.3 * value if name in decayed else 0.0
            values[name] = value - own * decay - own * mean / (np.sqrt(square) + 1e-6)
    return values


def test_updates_are_the_algorithm_s():
    """With gradients that jump, so that the rate is cut for one parameter alone."""
    random = np.random.default_rng(0)
    params = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in (("kernel", (5, 3)), ("bias", (3,)), ("other", (4,)))
    }
    gradients = [
        {
            name: (
                random.normal(size=x.shape) * (30 if t == 6 and name == "other" else 1)
            ).astype(np.float32)
            for name, x in params.items()
        }
        for t in range(10)
    ]
    rates = np.linspace(0.1, 0.01, 10)
    decayed = ("kernel", "other")
    rule = stable_adamw(
        FIELDS,
        lambda step: jnp.asarray(rates, jnp.float32)[step],
        lambda params: {name: name in decayed for name in params},
    )
    found, state = {n: jnp.asarray(x) for n, x in params.items()}, rule.init(params)
    for given in gradients:
        updates, state = jax.jit(rule.update)(given, state, found)
        found = optax.apply_updates(found, updates)
    expected = written_down(params, gradients, rates, decayed)
    for name, value in expected.items():
        assert_close(found[name], value, name=name)
    never = written_down(params, gradients[:6], rates[:6], decayed)
    assert abs(never["other"] - expected["other"]).max() > 1e-3


def scheduled(**fields):
    config = configuration.load_config("configs/modernbert.py", [])
    config.train.num_steps = 1000
    config.optimizer.update(
        {"learning_rate": 0.5, "warmup_steps": 100, "decay_fraction": 0.4, **fields}
    )
    return config


def test_rises_stays_and_falls():
    rates = learning_rates(scheduled())
    np.testing.assert_allclose(rates[:101], 0.5 * np.arange(101) / 100, rtol=1e-6)
    np.testing.assert_array_equal(rates[100:601], np.float32(0.5))
    over = np.arange(400) / 400
    assert_close(rates[600:], 0.5 * (1 - np.sqrt(over)))
