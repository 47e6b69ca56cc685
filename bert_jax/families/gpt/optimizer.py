"""GPT's schedules and Adam (openai/finetune-transformer-lm, opt.py)."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from bert_jax.training.optimizer import bert_adam, warmup_steps


def warmup_linear(config: ConfigDict) -> optax.Schedule:
    """Rises from 0 to the peak in the warm-up, all of it times the fraction of steps
    that are left.

    Args:
      config: Config with one phase, as for `optimizer.polynomial_schedule`.

    Raises:
      UserError: Phase 2 has its own rate. See also `warmup_steps`.
    """
    return _scale_peak(config, lambda risen, x, warmup: risen * (1 - x))


def warmup_cosine(config: ConfigDict) -> optax.Schedule:
    """Rises as `warmup_linear`. After the warm-up it follows half a period of a cosine,
    which began at step 0."""

    def shape(risen: jax.Array, x: jax.Array, warmup: float) -> jax.Array:
        return jnp.where(x <= warmup, risen, 0.5 * (1 + jnp.cos(math.pi * x)))

    return _scale_peak(config, shape)


def _scale_peak(
    config: ConfigDict, shape: Callable[[jax.Array, jax.Array, float], jax.Array]
) -> optax.Schedule:
    """Returns the peak times `shape`.

    Its arguments are the risen part (1 after the warm-up), the fraction of the steps
    before this one and the warm-up's fraction.
    """
    steps, optimizer = config.train.num_steps, config.optimizer
    warmup_steps(config, steps)  # checks both fields
    warmup = optimizer.warmup_fraction or optimizer.warmup_steps / steps

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        x = jnp.minimum(jnp.asarray(step), steps) / steps
        risen = jnp.where(x <= warmup, x / warmup, 1.0) if warmup else jnp.ones_like(x)
        return optimizer.learning_rate * shape(risen, x, warmup)

    return schedule


def openai_adam(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Returns BERT's Adam at a rate that corrects the moments' bias.

    See `bias_corrected`.
    """
    beta1, beta2 = optimizer.beta1, optimizer.beta2
    return bert_adam(optimizer, bias_corrected(schedule, beta1, beta2), mask)


def bias_corrected(
    schedule: optax.Schedule, beta1: float, beta2: float
) -> optax.Schedule:
    """Returns the rate times Adam's correction of both moments.

    The correction is sqrt(1 - beta2^t) / (1 - beta1^t) at update t. The rate then
    scales weight decay too, and `eps` is added to the uncorrected root.
    """

    def correct_bias(step: jax.typing.ArrayLike) -> jax.Array:
        t = jnp.asarray(step, jnp.float32) + 1
        # 1 - beta^t without the difference of two numbers close to 1.
        both = (
            -jnp.expm1(t * math.log(beta)) if beta else 1.0 for beta in (beta2, beta1)
        )
        second, first = both
        return schedule(step) * jnp.sqrt(second) / first

    return correct_bias
