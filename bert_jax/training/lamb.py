"""LAMB (You et al. 2020, arXiv:1904.00962v5)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from bert_jax.training.optimizer import NOT_DECAYED, layer_axes


def lamb(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """The paper's algorithm 2, an entry of OPTIMIZERS."""
    return optax.chain(
        optax.scale_by_adam(optimizer.beta1, optimizer.beta2, optimizer.eps),
        optax.add_decayed_weights(optimizer.weight_decay, mask),
        scale_by_trust_ratio(),
        optax.scale_by_learning_rate(schedule),
    )


def scale_by_trust_ratio() -> optax.GradientTransformation:
    """LAMB's layerwise step: each update times (parameter norm / update norm).

    The paper's phi is the identity, as in its experiments. Its "layer" is a parameter
    array; for stacked arrays, each layer's slice. As in the authors' code
    (tensorflow/addons, optimizers/lamb.py), the ratio is 1 for biases and LayerNorm,
    which do not decay, and if one of the norms is 0.
    """

    def update(
        updates: optax.Updates,
        state: optax.EmptyState,
        params: optax.Params | None = None,
    ) -> tuple[optax.Updates, optax.EmptyState]:
        def scale(path: tuple, update: jax.Array, param: jax.Array) -> jax.Array:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            if NOT_DECAYED.search(name):
                return update
            axes = layer_axes(name, update.ndim)
            param_norm, update_norm = (
                jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True))
                for x in (param, update)
            )
            both = (param_norm > 0) & (update_norm > 0)
            return update * jnp.where(both, param_norm / update_norm, 1.0)

        return jax.tree_util.tree_map_with_path(scale, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
