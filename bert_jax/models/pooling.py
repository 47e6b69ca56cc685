"""Vectors of words and texts, from those of their tokens."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def pool(
    hidden: Float[Array, "batch length hidden"],
    mask: Int[Array, "batch length"],
    pooling: str,
) -> Float[Array, "batch hidden"]:
    """Computes each text's vector, float32; 0 for one without tokens.

    Args:
      pooling: mean_all, of all tokens; mean, without the first and the last ([CLS] and
        [SEP]); cls; and of sentence-transformers max, mean_sqrt_len_tokens,
        weightedmean and lasttoken, which count [CLS] and [SEP] too.
    """
    hidden, counts = hidden.astype(jnp.float32), mask.sum(axis=1, keepdims=True)
    positions = jnp.arange(mask.shape[1])
    match pooling:
        case "cls":
            return hidden[:, 0]
        case "lasttoken":
            return hidden[jnp.arange(len(mask)), counts[:, 0] - 1]
        case "max":
            return jnp.where(mask[..., None] > 0, hidden, -jnp.inf).max(axis=1)
        case "mean":
            weights = mask * ((positions > 0) & (positions < counts - 1))
        case "weightedmean":
            weights = mask * (positions + 1)
        case _:
            weights = mask
    total = jnp.maximum(weights.sum(axis=1, keepdims=True), 1).astype(jnp.float32)
    total = jnp.sqrt(total) if pooling == "mean_sqrt_len_tokens" else total
    # A TPU would otherwise round the products' factors to bfloat16.
    highest = jax.lax.Precision.HIGHEST
    factors = weights.astype(jnp.float32)
    return jnp.einsum("bl,blh->bh", factors, hidden, precision=highest) / total


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
