"""The kernel for the devices at hand: `model.attention=fused`."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_jax.models import layers
from bert_jax.models.attention import AttentionMask
from bert_jax.models.config import LONGEST_WHOLE_ROW
from bert_jax.types import DropoutKey


def fused_attention(
    query: Float[Array, "batch length heads head_dim"],
    keys: Float[Array, "batch length heads head_dim"],
    value: Float[Array, "batch length heads head_dim"],
    mask: AttentionMask,
    rate: float,
    key: DropoutKey,
    causal: bool = False,
) -> tuple[Float[Array, "batch length heads head_dim"], None]:
    """Runs FlashAttention's method on a GPU. On a TPU it runs a kernel of whole rows,
    or JAX's splash attention for longer ones."""
    sight = (mask.ids, rate, key, causal, mask.window)
    if layers.platform_name() != "tpu":
        from bert_jax.models.kernels import fused  # Triton is slow to import

        packed = jnp.stack([query, keys, value], axis=3)
        return fused.fused_attention(packed, *sight), None
    if query.shape[1] <= LONGEST_WHOLE_ROW:
        from bert_jax.models.kernels.whole_row import whole_row_attention

        return whole_row_attention(query, keys, value, *sight), None
    from bert_jax.models.kernels.splash import splash_attention

    if rate > 0 and key is not None:
        raise ValueError(f"attention fused: has no dropout here; rate={rate}")
    mixed = splash_attention(query, keys, value, mask.ids, causal, mask.window)
    return mixed, None
