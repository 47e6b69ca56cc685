"""Learning rates over the steps, and numbers of config.optimizer that are wrong."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.phases import phases_of
from bert_jax.training import optimizer
from configs import lamb
from tests.micro import error_line
from tests.training.optimizer_config import make_config

PHASE2 = {"fraction": 0.2, "learning_rate": 4e-3, "warmup_steps": 5}
# The decay has been running since step 0.
PAPER = {0: 0.0, 1: 1e-8, 9_999: 0.9999e-4, 10_000: 0.99e-4, 500_000: 0.5e-4}
PAPER |= {999_999: 1e-10, 1_000_000: 0.0, 1_000_001: 0.0}
# With a warm-up for each phase.
PHASES = {0: 0.0, 5: 0.5e-2, 9: 0.9e-2, 10: 1e-2 * (70 / 80) ** 0.5}
PHASES |= {79: 1e-2 * (1 / 80) ** 0.5, 80: 0.0, 82: 4e-3 * 2 / 5}
PHASES |= {85: 4e-3 * (15 / 20) ** 0.5, 99: 4e-3 * (1 / 20) ** 0.5, 100: 0.0, 101: 0.0}
LAMB = {1000: 3e-3, 2000: 6e-3 * (5038 / 7038) ** 0.5, 7038: 0.0, 7138: 2e-3}
LAMB |= {7238: 4e-3 * (1363 / 1563) ** 0.5, 8601: 0.0}


@pytest.mark.parametrize(
    ("config", "expected", "compiled"),
    [
        (
            make_config(learning_rate=1e-4, warmup_steps=10_000, num_steps=10**6),
            PAPER,
            PAPER,
        ),
        (make_config(decay_power=0.5, phase2=PHASE2), PHASES, [82]),
        (lamb.get_config(), LAMB, []),
    ],
    ids=["paper", "phases", "lamb"],
)
def test_schedule(config, expected, compiled):
    schedule = optimizer.learning_rate_schedule(config)
    for step, rate in expected.items():
        np.testing.assert_allclose(schedule(step), rate, rtol=1e-6, err_msg=str(step))
    for step in compiled:  # to the bit
        assert jax.jit(schedule)(jnp.int32(step)) == schedule(step)
    assert schedule(jnp.int32(3)).dtype == jnp.float32


def test_recipes_of_lamb():
    phases = [phase[:4] for phase in phases_of(lamb.get_config())]
    assert phases == [(0, 7038, 65536, 128), (7038, 8601, 32768, 512)]
    # The first and the last row of the paper's table.
    for batch, steps, peak, share in (
        ("512", 1_000_000, 5e-3 / 8, 320),
        ("32768", 15_625, 5e-3, 5),
    ):
        config = lamb.get_config(batch)
        assert config.train.num_steps == steps
        schedule = optimizer.learning_rate_schedule(config)
        last = steps // share
        np.testing.assert_allclose(schedule(last // 2), peak / 2, rtol=1e-3)
        np.testing.assert_allclose(schedule(last), peak * (1 - 1 / share), rtol=1e-3)
        assert schedule(last) > schedule(last + 1)


def test_warmup_fraction_is_of_the_steps():
    by_steps = optimizer.learning_rate_schedule(make_config(warmup_steps=10))
    config = make_config(warmup_steps=0, warmup_fraction=0.1)
    by_fraction = optimizer.learning_rate_schedule(config)
    steps = jnp.arange(101)
    np.testing.assert_array_equal(by_steps(steps), by_fraction(steps))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "flat"}, r"config\.optimizer\.schedule='flat': .*polynomial"),
        ({"warmup_steps": 101}, r"config\.optimizer\.warmup_steps=101: .* 100 steps"),
        (
            {"phase2": {"fraction": 0.1, "learning_rate": 1.0, "warmup_steps": 11}},
            r"phase2\..* warmup_steps=11: .*10 steps",
        ),
        ({"schedule": "stairs"}, r"schedule=stairs: .* Python .*jnp\.where"),
    ],
)
def test_schedule_fields_that_are_bad_are_named(fields, message, monkeypatch):
    stairs = lambda config: lambda step: 1.0 if step < 10 else 0.1  # noqa: E731
    monkeypatch.setitem(optimizer.SCHEDULES, "stairs", stairs)
    line = error_line(optimizer.learning_rates, make_config(**fields))
    assert re.search(message, line)
