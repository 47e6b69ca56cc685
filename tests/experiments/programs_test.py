"""Runs that differ in their learning rates, or in their length, share a program."""

import jax
import pytest

from experiments.lib import programs


def step_text(*fields):
    given = ("train.batch_size=8", "model.num_hidden_layers=1", *fields)
    config = programs.load("configs/tiny.py", [f"--config.{field}" for field in given])
    return programs.trace(config, jax.devices()[:1], "train").traced.lower().as_text()


@pytest.mark.slow
def test_rate_is_an_argument():
    steps = ("train.num_steps=77", "optimizer.warmup_fraction=0.5")
    assert step_text("optimizer.learning_rate=3e-5", *steps) == step_text()
