"""A config of an optimizer, and its steps."""

from types import MappingProxyType

import jax
import optax
from ml_collections import ConfigDict

from bert_jax.config.configuration import with_defaults
from bert_jax.config.fields import copy_mutable
from bert_jax.training import optimizer

VALUES = {"name": "bert_adam", "schedule": "polynomial", "learning_rate": 1e-2}
VALUES |= {"warmup_steps": 10, "warmup_fraction": 0.0, "weight_decay": 0.01}
VALUES |= {"beta1": 0.9, "beta2": 0.999, "eps": 1e-6}
VALUES |= {"decay_power": 1.0, "clip_norm": 1.0, "ema": 0.0, "frozen": ()}
ONE_PHASE = {"fraction": 0.0, "learning_rate": 0.0, "warmup_steps": 0}


def make_config(num_steps=100, phase2=MappingProxyType({}), **fields) -> ConfigDict:
    assert fields.keys() <= VALUES.keys()
    config = copy_mutable(with_defaults())
    config.optimizer.update(VALUES | fields)
    config.train.num_steps = num_steps
    config.phase2.update(ONE_PHASE | {**phase2})
    return config


def take_steps(config, params, gradients, axes=MappingProxyType({})):
    """Returns the parameters after steps with these gradients."""
    transformation = optimizer.make_optimizer(config, (), axes)

    @jax.jit
    def step(params, state, gradient, rate):
        given = (gradient, state, params)
        updates, state = transformation.update(*given, learning_rate=rate)
        return optax.apply_updates(params, updates), state

    state, rates = transformation.init(params), optimizer.learning_rates(config)
    for gradient, rate in zip(gradients, rates, strict=False):
        params, state = step(params, state, gradient, rate)
    return params
