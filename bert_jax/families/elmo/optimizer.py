"""The optimizer of an ELMo's pre-training (allenai/bilm-tf, training.py)."""

from collections.abc import Callable

import optax
from ml_collections import ConfigDict


def adagrad(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Makes Adagrad as in TensorFlow (Duchi et al. 2011): the squares' sum starts at 1,
    without an eps."""
    scaled = optax.scale_by_rss(initial_accumulator_value=1.0, eps=0.0)
    decayed = optax.add_decayed_weights(optimizer.weight_decay, mask)
    return optax.chain(scaled, decayed, optax.scale_by_learning_rate(schedule))
