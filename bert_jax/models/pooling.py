"""Vectors of several positions."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def means(
    states: Float[Array, "batch length *shape"], owners: Any, count: int
) -> Float[Array, "batch count *shape"]:
    """The mean of each vector's positions; 0 if it has none.

    Args:
      owners: the vector of each position [batch, length], or -1.
    """
    owned = owners[:, None] == jnp.arange(count)[:, None]
    weights = owned / jnp.maximum(1, owned.sum(axis=2, keepdims=True))
    flat = states.reshape(*states.shape[:2], -1)
    # A TPU would otherwise round the products' factors to bfloat16.
    highest = jax.lax.Precision.HIGHEST
    vectors = jnp.einsum("bvl,bls->bvs", weights, flat, precision=highest)
    return vectors.reshape(*vectors.shape[:2], *states.shape[2:])
