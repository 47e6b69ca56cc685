"""Attention by cuDNN's own kernel, for NVIDIA's GPUs.

JAX calls it (jax.nn.dot_product_attention). It has a dropout that JAX keeps private,
whose bits a resumed run could not draw again, so it trains only models whose attention
drops nothing. It takes a length for each row, so it cannot compute packed ones. A mask
would be an array of length x length, which cuDNN reads and differentiates.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def cudnn_attention(
    query: Float[Array, "batch length heads head_dim"],
    keys: Float[Array, "batch length heads head_dim"],
    value: Float[Array, "batch length heads head_dim"],
    mask_ids: tuple[Int[Array, "batch 1"], Int[Array, "batch length"]],
    causal: bool = False,
) -> Float[Array, "batch length heads head_dim"]:
    """Computes softmax attention of every query over a row's tokens, without dropout.

    Args:
      query: Queries in bfloat16, like keys and values. head_dim is one of
        `config.SUPPORTED_HEAD_DIMS`.
      mask_ids: The id of a row's tokens, which come before its padding, and each key's.
        A row with only padding attends to its first position.
      causal: Whether a query attends to no position after its own.
    """
    lengths = jnp.sum(mask_ids[1] == mask_ids[0], axis=1, dtype=jnp.int32)
    length = query.shape[1]
    if length % 2:  # an odd length, which JAX refuses here
        one = ((0, 0), (0, 1), (0, 0), (0, 0))
        query, keys, value = (jnp.pad(x, one) for x in (query, keys, value))
    mixed = jax.nn.dot_product_attention(
        query,
        keys,
        value,
        is_causal=causal,
        # All queries are computed, padding's too, as in the other attentions.
        key_value_seq_lengths=jnp.maximum(lengths, 1),
        implementation="cudnn",
    )
    return mixed[:, :length]
