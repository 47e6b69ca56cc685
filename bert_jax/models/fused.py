"""BERT's layer in a GPU's kernels: the same parameters, fewer passes over memory."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from bert_jax.models.attention import AttentionMask, SelfAttention
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import EncoderLayer
from bert_jax.models.kernels import activation, fused, norm
from bert_jax.models.layers import PRODUCT, Dense, gather_positions
from bert_jax.models.matmul import linear
from bert_jax.types import DropoutKey


class FusedSelfAttention(SelfAttention):
    """Self-attention whose queries, keys and values are one product."""

    def mix(
        self,
        hidden: Float[Array, "batch length hidden"],
        mask: AttentionMask,
        key: DropoutKey,
        positions: Int[Array, "batch positions"] | None,
        *projections: Dense,
    ) -> Float[Array, "batch queries heads head_dim"]:
        config, rate = self.config, self.config.attention_probs_dropout_prob
        kernels, biases = zip(
            *(each.parameters(hidden.shape[-1:]) for each in projections), strict=True
        )
        # The heads are the outer axis because a mesh splits them.
        kernel = jnp.stack(kernels, axis=2)  # [embed, heads, 3, head_dim]
        bias = jnp.stack(biases, axis=1)  # [heads, 3, head_dim]
        names = ("embed", "heads", None, "head_dim")
        # The attention's kernel computes the gradient of the biases.
        constant = jax.lax.stop_gradient(bias)
        product = linear(names, hidden.astype(config.dtype), kernel, constant)
        packed = checkpoint_name(product, PRODUCT)  # [batch, length, heads, 3, ...]
        sight = (mask.ids, rate, key, config.causal, mask.window)
        mixed = fused.fused_attention(packed, *sight, bias=bias)
        return mixed if positions is None else gather_positions(mixed, positions)


class FusedNorm(nn.Module):
    """LayerNorm of a residual and a linear layer's output, in one GPU kernel each way.

    It has the same parameters as `layer_norm`.
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        product: tuple[Float[Array, "batch length hidden"], Float[Array, "hidden"]],
        residual: Float[Array, "batch length hidden"],
        rate: float,
        key: DropoutKey,
        positions: Int[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length hidden"]:
        def vector(name: str, init: nn.initializers.Initializer) -> Array:
            boxed = nn.with_logical_partitioning(init, ("norm",))
            return jnp.asarray(self.param(name, boxed, residual.shape[-1:]))

        scale = vector("scale", nn.initializers.ones_init())
        bias = vector("bias", nn.initializers.zeros_init())
        run, eps = norm.fused_norm, self.config.layer_norm_eps
        return run(*product, residual, scale, bias, rate, key, eps, positions)


class FusedEncoderLayer(EncoderLayer):
    """BERT's layer, whose kernels add the biases of linear layers."""

    adds_bias: ClassVar[bool] = False

    def add_and_norm(
        self, name: str, x: Any, hidden: Array, key: DropoutKey, positions: Any
    ) -> Float[Array, "batch queries hidden"]:
        rate = self.config.hidden_dropout_prob
        return FusedNorm(self.config, name=name)(x, hidden, rate, key, positions)

    def activate(self, x: Any) -> Float[Array, "batch queries inner"]:
        return activation.fused_activation(self.config.hidden_act, *x)
