"""StableAdamW, and a rate that rises, stays and falls."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.training.optimizer import layer_axes, map_named, warmup_steps


class _State(NamedTuple):
    steps: Int[Array, ""]
    mu: optax.Updates
    nu: optax.Updates


def stable_adamw(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Makes AdamW whose rate is divided, for each parameter, by the root mean square of
    its gradient over Adam's denominator, where that is above 1 (Wortsman et al. 2023,
    arXiv:2304.13013, algorithm 2). Decay is at that rate too. Stacked layers are
    separate parameters.

    Args:
      optimizer: Fields of config.optimizer.
      mask: Function that selects the parameters that decay.
    """
    beta1, beta2, eps = optimizer.beta1, optimizer.beta2, optimizer.eps

    def init(params: optax.Params) -> _State:
        zeros = optax.tree.zeros_like
        return _State(jnp.zeros((), jnp.int32), zeros(params), zeros(params))

    def update(
        updates: optax.Updates, state: _State, params: optax.Params | None = None
    ) -> tuple[optax.Updates, _State]:
        assert params is not None
        count = state.steps + 1
        # These fractions of the newest gradient leave the means without bias.
        # 1 - beta^count, the running mean of `count` ones.
        times = count.astype(jnp.float32)
        new1, new2 = ((1 - b) / (1 - jnp.float32(b) ** times) for b in (beta1, beta2))
        mu = jax.tree.map(lambda m, g: m + new1 * (g - m), state.mu, updates)
        nu = jax.tree.map(lambda v, g: v + new2 * (g * g - v), state.nu, updates)
        decays = mask(params)
        rate = schedule(state.steps)

        def step(
            name: str, gradient: Array, m: Array, v: Array, param: Array, d: bool
        ) -> Array:
            ratio = jnp.mean(
                gradient**2 / jnp.maximum(v, eps**2),
                axis=layer_axes(name, gradient.ndim),
                keepdims=True,
            )
            parameter_rate = rate / jnp.maximum(1.0, jnp.sqrt(ratio))
            decay = optimizer.weight_decay * param if d else 0.0
            return -parameter_rate * (m / (jnp.sqrt(v) + eps) + decay)

        steps = map_named(step, updates, mu, nu, params, decays)
        return steps, _State(count, mu, nu)

    return optax.GradientTransformation(init, update)


def warmup_stable_decay(config: ConfigDict) -> optax.Schedule:
    """Builds linear warm-up from 0, then the peak, and in the last
    `optimizer.decay_fraction` of the steps the peak times 1 - sqrt of the fraction of
    those steps that is over (Hagele et al. 2024, arXiv:2405.18392).

    Args:
      config: Config as for `optimizer.polynomial_schedule`, with one phase.

    Raises:
      UserError: Warm-up and decay take more than all steps. See also `warmup_steps`.
    """
    steps = config.train.num_steps
    warmup = warmup_steps(config, steps)
    share, peak = config.optimizer.decay_fraction, config.optimizer.learning_rate
    decay = int(share * steps)
    if warmup + decay > steps:
        raise UserError(
            f"config.optimizer.decay_fraction={share}: {decay} steps after {warmup} "
            f"of warm-up are more than config.train.num_steps={steps}"
        )

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.minimum(jnp.asarray(step), steps)
        rising = jnp.where(step < warmup, step / max(warmup, 1), 1.0)
        over = jnp.maximum(step - (steps - decay), 0) / max(decay, 1)
        return peak * rising * (1 - jnp.sqrt(over))

    return schedule
