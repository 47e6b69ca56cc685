"""The state of a custom optimizer, which a checkpoint must hold."""

import pytest
from runs import losses, run

CONFIG = """
import jax
import jax.numpy as jnp
import optax
from bert_jax.training.optimizer import OPTIMIZERS

extends = "{micro}"

def rule(init, after):
    def update(grads, state, params=None):
        return jax.tree.map(lambda g: -0.01 * g, grads), after(state)
    return lambda fields, schedule, mask: optax.GradientTransformation(
        lambda params: init, update
    )

OPTIMIZERS["own"] = rule({init}, lambda state: {after})

def get_config(config):
    config.optimizer.name = "own"
    config.train.num_steps = 4
    config.checkpoint.save_every = 2
    return config
"""


@pytest.fixture
def train(micro, tmp_path):
    """Trains with a state before and after an update. Returns the messages."""

    def trained(init, after, *args, status=0):
        path = tmp_path / "own.py"
        path.write_text(CONFIG.format(micro=micro, init=init, after=after))
        return run(path, tmp_path / "run", *args, status=status)[1]

    return trained


@pytest.mark.parametrize("init", ["(optax.EmptyState(),)"])
def test_a_state_without_arrays_is_no_obstacle(train, tmp_path, init):
    """Orbax refuses to save it."""
    train(init, "state")
    longer = ("--config.train.num_steps=6", "--config.train.extend=True")
    assert "resuming at step 4 of 6" in train(init, "state", *longer)
    assert len(losses(tmp_path / "run")) == 6


@pytest.mark.parametrize(
    ("init", "after", "message"),
    [
        (
            '{"m": jnp.zeros((0, 3))}',
            "state",
            "has an empty array, 1/m float32[0, 3], which no checkpoint can hold",
        ),
        (
            "jnp.zeros((), jnp.int32)",
            "state + 0.5",
            "another structure after an update: 1 is int32[] in init and float32[] in",
        ),
    ],
)
def test_what_no_checkpoint_could_hold_is_said_before_the_first_step(
    train, tmp_path, init, after, message
):
    line = train(init, after, status=2).splitlines()[-1]
    assert line.startswith("error: config.optimizer.name=own: its state")
    assert message in line
    assert not (tmp_path / "run").exists()
