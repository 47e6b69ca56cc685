"""Attention in one TPU kernel: JAX's own "splash" attention.

It is FlashAttention's method for TPUs (jax.experimental.pallas.ops.tpu). It has no
dropout, so it trains only models whose attention drops nothing.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.models.kernels.on_mesh import IDS, VECTORS, on_mesh

BLOCKS = (512, 384, 256, 128)  # queries or keys per block (a TPU's registers have 128)
_SPECS = (VECTORS, VECTORS, VECTORS, IDS, IDS)


def splash_attention(
    query: Float[Array, "batch length heads head_dim"],
    keys: Float[Array, "batch length heads head_dim"],
    value: Float[Array, "batch length heads head_dim"],
    mask_ids: tuple[Int[Array, "batch #length"], Int[Array, "batch length"]],
    causal: bool = False,
    window: int = 0,
    *,
    interpret: bool = False,
) -> Float[Array, "batch length heads head_dim"]:
    """Computes attention of each query over the keys with its id, without dropout.

    A length that 128 does not divide is padded to one that it does. The output of a
    query that attends to no key is the mean of all values, and of no use.

    Args:
      mask_ids: Ids of queries and keys.
      causal: Whether a query attends to no position after its own.
      window: Maximum number of positions it attends to on each side. 0 means all.
      interpret: Whether to run the kernel as JAX operations. Otherwise it needs a TPU.
    """
    batch, length, _, size = query.shape
    query_ids, key_ids = jnp.broadcast_to(mask_ids[0], (batch, length)), mask_ids[1]
    query = query * size**-0.5  # the kernel does not scale
    padded = -length % BLOCKS[-1]
    wider = ((0, 0), (0, padded), (0, 0), (0, 0))
    query, keys, value = (jnp.pad(x, wider) for x in (query, keys, value))
    # Padding attends only to padding.
    query_ids, key_ids = (
        jnp.pad(x, wider[:2], constant_values=-1) for x in (query_ids, key_ids)
    )
    attend = functools.partial(_attend, causal, window, interpret)
    mixed = on_mesh(attend, _SPECS)(query, keys, value, query_ids, key_ids)
    return mixed[:, :length]


def _attend(
    causal: bool,
    window: int,
    interpret: bool,
    query: Array,
    keys: Array,
    value: Array,
    query_ids: Array,
    key_ids: Array,
) -> Array:
    """Computes the rows and heads of one device."""
    # Here, because they take a second to import, and only TPUs need them.
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as kernels,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_mask as masks,
    )

    length, heads = query.shape[1:3]
    shape = (length, length)
    mask: masks.Mask = (masks.CausalMask if causal else masks.FullMask)(shape)
    if window:
        mask = masks.LocalMask(shape, (window, 0 if causal else window), offset=0)
    block = next(size for size in BLOCKS if length % size == 0)
    kernel = kernels.make_splash_mha_single_device(
        masks.MultiHeadMask([mask] * heads),
        block_sizes=kernels.BlockSizes(*(block,) * 6, use_fused_bwd_kernel=True),
        interpret=interpret,
    )
    heads_first = (x.swapaxes(1, 2) for x in (query, keys, value))
    ids = kernels.SegmentIds(query_ids, key_ids)
    return jax.vmap(kernel)(*heads_first, ids).swapaxes(1, 2)
