"""A custom optimizer without a state of its own, as plain gradient descent."""

from runs import losses, run

CONFIG = """
import optax
from bert_jax.training.optimizer import OPTIMIZERS

extends = "{micro}"

def descent(fields, schedule, mask):
    return optax.chain(optax.identity(), optax.scale(-0.01))

OPTIMIZERS["own"] = descent

def get_config(config):
    config.optimizer.name = "own"
    config.train.num_steps = 4
    config.checkpoint.save_every = 2
    return config
"""


def test_a_state_without_arrays_is_no_obstacle(micro, tmp_path):
    """Orbax refuses to save it."""
    path = tmp_path / "own.py"
    path.write_text(CONFIG.format(micro=micro))
    run(path, tmp_path / "run")
    longer = ("--config.train.num_steps=6", "--config.train.extend=True")
    _, messages = run(path, tmp_path / "run", *longer)
    assert "resuming at step 4 of 6" in messages
    assert len(losses(tmp_path / "run")) == 6
