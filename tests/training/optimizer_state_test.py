"""The state of a custom optimizer, which a checkpoint must hold."""

from runs import losses, run

CONFIG = """
import jax
import optax
from bert_jax.training.optimizer import OPTIMIZERS

extends = "{micro}"

def update(grads, state, params=None):
    return jax.tree.map(lambda g: -0.01 * g, grads), state

OPTIMIZERS["own"] = lambda fields, schedule, mask: optax.GradientTransformation(
    lambda params: (optax.EmptyState(),), update
)

def get_config(config):
    config.optimizer.name = "own"
    config.train.num_steps = 4
    config.checkpoint.save_every = 2
    return config
"""


def test_a_state_without_arrays_is_saved_and_restored(micro, tmp_path):
    """Orbax saves no tree without arrays."""
    path = tmp_path / "own.py"
    path.write_text(CONFIG.format(micro=micro))
    run(path, tmp_path / "run")
    longer = ("--config.train.num_steps=6", "--config.train.extend=True")
    _, err = run(path, tmp_path / "run", *longer)
    assert "resuming at step 4 of 6" in err
    assert len(losses(tmp_path / "run")) == 6
