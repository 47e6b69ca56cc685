"""The kernel for the devices at hand: values of `model.attention`."""

from typing import Any

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
    if layers.platform_name() != "tpu":
        packed = jnp.stack([query, keys, value], axis=3)
        return packed_attention(packed, mask, rate, key, causal), None
    if query.shape[1] <= LONGEST_WHOLE_ROW:
        from bert_jax.models.kernels.whole_row import whole_row_attention

        given = (query, keys, value, mask.ids, rate, key, causal, mask.window)
        return whole_row_attention(*given), None
    from bert_jax.models.kernels.splash import splash_attention

    _require_no_dropout("fused", rate, key)
    sees = (mask.ids, causal, mask.window)
    return splash_attention(query, keys, value, *sees), None


def packed_attention(
    packed: Float[Array, "batch length heads 3 head_dim"],
    mask: AttentionMask,
    rate: float,
    key: DropoutKey,
    causal: bool,
    bias: Float[Array, "heads 3 head_dim"] | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Runs the GPU's kernel (`kernels.fused.fused_attention`)."""
    from bert_jax.models.kernels.fused import fused_attention  # Triton is slow

    sight = (mask.ids, rate, key, causal, mask.window)
    return fused_attention(packed, *sight, bias=bias)


def cudnn_attention(
    query: Float[Array, "batch length heads head_dim"],
    keys: Float[Array, "batch length heads head_dim"],
    value: Float[Array, "batch length heads head_dim"],
    mask: AttentionMask,
    rate: float,
    key: DropoutKey,
    causal: bool = False,
) -> tuple[Float[Array, "batch length heads head_dim"], None]:
    """Runs cuDNN's own kernel."""
    from bert_jax.models.kernels.cudnn import cudnn_attention

    _require_no_dropout("cudnn", rate, key)
    if mask.window:
        raise ValueError("attention cudnn: computes no windows")
    return cudnn_attention(query, keys, value, mask.ids, causal), None


def _require_no_dropout(name: str, rate: float, key: Any) -> None:
    if rate > 0 and key is not None:
        raise ValueError(f"attention {name}: has no dropout here; rate={rate}")
