"""The state of an optimizer of one's own, which a checkpoint must hold."""

from runs import losses, run

CONFIG = """
import jax
import optax
from bert_jax.training.optimizer import OPTIMIZERS

extends = "{micro}"
OPTIMIZERS["own"] = lambda fields, schedule, mask: optax.GradientTransformation(
    lambda params: {init},
    lambda grads, state, params: (jax.tree.map(lambda g: -0.01 * g, grads), state),
)

def get_config(config):
    config.optimizer.name = "own"
    config.train.num_steps = 4
    config.checkpoint.save_every = 2
    return config
"""


def test_a_state_without_arrays_is_no_obstacle(micro, tmp_path):
    """Orbax refuses to save it."""
    path = tmp_path / "own.py"
    path.write_text(CONFIG.format(micro=micro, init="(optax.EmptyState(),)"))
    run(path, tmp_path / "run")
    longer = ("--config.train.num_steps=6", "--config.train.extend=True")
    _, err = run(path, tmp_path / "run", *longer)
    assert "resuming at step 4 of 6" in err
    assert len(losses(tmp_path / "run")) == 6


def test_an_empty_array_is_one_line(micro, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CONFIG.format(micro=micro, init='{"m": jax.numpy.zeros((0, 3))}'))
    _, err = run(path, tmp_path / "run", status=2)
    assert "a checkpoint cannot be written: " in err.splitlines()[-1]
