"""Adam as BERT uses it: schedule, clipping, decay by name (google-research/bert,
optimization.py)."""

import math
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree
from ml_collections import ConfigDict

from bert_jax.errors import UserError

# AdamWeightDecayOptimizer's exclude_from_weight_decay. By name and not by rank: with
# stacked layers a LayerNorm is [layers, hidden], with split heads a bias is a matrix.
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")


def learning_rate_schedule(config: ConfigDict) -> optax.Schedule:
    """Linear warm-up from 0, then linear decay to 0 at `config.train.num_steps`.

    The decay starts at step 0, as in create_optimizer: where the warm-up ends, the rate
    drops from its peak by the warm-up's share of the run. Steps count from 0, so the
    first update has rate 0 where there is a warm-up.

    Args:
      config: the whole config; `optimizer.learning_rate`, `optimizer.warmup_steps` or
        `optimizer.warmup_fraction` (of the steps), and `train.num_steps` are read.

    Returns:
      A function of the step (number of updates before this one) to the rate, float32.

    Raises:
      UserError: a negative rate, a warm-up given twice or longer than the run.
    """
    peak = _number(config, "learning_rate")
    num_steps = config.train.num_steps
    if num_steps < 1:
        raise UserError(f"config.train.num_steps={num_steps}: at least 1 is needed")
    warmup_steps = _warmup_steps(config)

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.minimum(jnp.asarray(step), num_steps)
        rising = step / max(warmup_steps, 1)
        falling = (num_steps - step) / num_steps
        return peak * jnp.where(step < warmup_steps, rising, falling)

    return schedule


def decay_mask(params: PyTree) -> PyTree[bool]:
    """True where weights decay: not under a LayerNorm, and no bias.

    Decided by the parameter's path, whatever its shape; embeddings are decayed.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not _NOT_DECAYED.search(jax.tree_util.keystr(path)), params
    )


class ScaleByBertAdamState(NamedTuple):
    """The moments, each a tree shaped as the parameters."""

    mu: optax.Updates
    nu: optax.Updates


def scale_by_bert_adam(
    beta1: float, beta2: float, eps: float
) -> optax.GradientTransformation:
    """Adam without bias correction, `eps` outside the square root."""

    def init(params: optax.Params) -> ScaleByBertAdamState:
        # Two trees: the same array twice could not be donated.
        return ScaleByBertAdamState(
            mu=optax.tree.zeros_like(params), nu=optax.tree.zeros_like(params)
        )

    def update(
        updates: optax.Updates,
        state: ScaleByBertAdamState,
        params: optax.Params | None = None,
    ) -> tuple[optax.Updates, ScaleByBertAdamState]:
        del params
        mu = optax.tree.update_moment(updates, state.mu, beta1, 1)
        nu = optax.tree.update_moment(updates, state.nu, beta2, 2)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, ScaleByBertAdamState(mu, nu)

    return optax.GradientTransformation(init, update)


def make(config: ConfigDict) -> optax.GradientTransformation:
    """The optimizer that `config.optimizer` names, its schedule and clipping included.

    `bert_adam` is what BERT was trained with; `adamw` corrects the moments' bias. Both
    decay weights times the learning rate and apart from the moments, where `decay_mask`
    says so, and first clip the gradients' global norm to `clip_norm` (0: not at all).
    `update` needs the parameters.

    Raises:
      UserError: an unknown name, or a number outside its range.
    """
    optimizer = config.optimizer
    makers = {"bert_adam": _bert_adam, "adamw": _adamw}
    if optimizer.name not in makers:
        raise UserError(
            f"config.optimizer.name={optimizer.name}: one of {', '.join(makers)}"
        )
    for field in ("beta1", "beta2"):
        _number(config, field, below=1.0)
    for field in ("eps", "weight_decay"):
        _number(config, field)
    clip_norm = _number(config, "clip_norm")
    schedule = learning_rate_schedule(config)
    clip = optax.clip_by_global_norm(clip_norm) if clip_norm else optax.identity()
    return optax.chain(clip, makers[optimizer.name](optimizer, schedule))


def _bert_adam(
    optimizer: ConfigDict, schedule: optax.Schedule
) -> optax.GradientTransformation:
    return optax.chain(
        scale_by_bert_adam(optimizer.beta1, optimizer.beta2, optimizer.eps),
        optax.add_decayed_weights(optimizer.weight_decay, decay_mask),
        optax.scale_by_learning_rate(schedule),
    )


def _adamw(
    optimizer: ConfigDict, schedule: optax.Schedule
) -> optax.GradientTransformation:
    return optax.adamw(
        schedule,
        b1=optimizer.beta1,
        b2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        mask=decay_mask,
    )


def _warmup_steps(config: ConfigDict) -> int:
    num_steps = config.train.num_steps
    steps = _number(config, "warmup_steps")
    fraction = _number(config, "warmup_fraction")
    if steps and fraction:
        raise UserError(
            f"config.optimizer.warmup_steps={steps} and "
            f"config.optimizer.warmup_fraction={fraction}: one of them must be 0"
        )
    if fraction > 1:
        raise UserError(f"config.optimizer.warmup_fraction={fraction}: at most 1")
    if steps > num_steps:
        raise UserError(
            f"config.optimizer.warmup_steps={steps} is more than "
            f"config.train.num_steps={num_steps}"
        )
    return int(steps or fraction * num_steps)


def _number(config: ConfigDict, field: str, below: float = math.inf) -> int | float:
    """A field of `config.optimizer`, in [0, below)."""
    value = config.optimizer[field]
    if not 0 <= value < below:
        limit = "" if below == math.inf else f" and less than {below}"
        raise UserError(f"config.optimizer.{field}={value}: at least 0{limit}")
    return value
