"""BERT's layer in a GPU's kernels: the same parameters, fewer passes over memory."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from bert_jax.models.attention import AttentionMask, SelfAttention
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import EncoderLayer
from bert_jax.models.kernels import activation, choose
from bert_jax.models.kernels import norm as norms
from bert_jax.models.layers import (
    PRODUCT,
    Dense,
    constrain_rows,
    gather_positions,
    layer_keys,
)
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
        # [batch, length, heads, 3, head_dim] and [heads, 3, head_dim]
        packed, bias = _packed(self.config, hidden, *projections)
        rate, causal = self.config.attention_probs_dropout_prob, self.config.causal
        mixed = choose.packed_attention(packed, mask, rate, key, causal, bias)
        return mixed if positions is None else gather_positions(mixed, positions)


def _packed(
    config: BertConfig, hidden: Float[Array, "batch length hidden"], *parts: Dense
) -> tuple[
    Float[Array, "batch length heads 3 head_dim"], Float[Array, "heads 3 head_dim"]
]:
    """Computes queries, keys and values by one product, and returns their biases too,
    whose gradients the product does not compute. The parameters remain in `parts`.

    The heads are the outer axis because a mesh splits them.
    """
    kernels, biases = zip(
        *(part.parameters(hidden.shape[-1:]) for part in parts), strict=True
    )
    names = ("embed", "heads", None, "head_dim")
    kernel, bias = jnp.stack(kernels, axis=2), jnp.stack(biases, axis=1)
    # [embed, heads, 3, head_dim] and [heads, 3, head_dim]
    constant = jax.lax.stop_gradient(bias)
    x = hidden.astype(config.dtype)
    return checkpoint_name(linear(names, x, kernel, constant), PRODUCT), bias


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
        eps = self.config.layer_norm_eps
        return norms.fused_norm(
            *product, residual, scale, bias, rate, key, eps, positions
        )


class FusedEncoderLayer(EncoderLayer):
    """BERT's layer, whose kernels add biases, drop, add the residual and normalize."""

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        index: int | Int[Array, ""],
        mask: AttentionMask,
        key: DropoutKey,
        positions: Int[Array, "batch positions"] | None = None,
    ) -> tuple[Float[Array, "batch queries hidden"], ...]:
        """Encodes as `EncoderLayer` does."""
        config, rate = self.config, self.config.hidden_dropout_prob
        keys = layer_keys(key, index, 3)

        attention = self.attends(config, adds_bias=False, name="attention")
        attended = attention(hidden, mask, keys[0], positions)
        hidden = hidden if positions is None else gather_positions(hidden, positions)
        normalize = FusedNorm(config, name="attention_layer_norm")
        hidden = normalize(attended, hidden, rate, keys[1], positions)

        size, names = (config.intermediate_size,), ("embed", "mlp")
        dense = Dense(config, size, names, adds_bias=False, name="intermediate")
        inner = activation.fused_activation(config.hidden_act, *dense(hidden))
        size, names = (config.hidden_size,), ("mlp", "embed")
        output = Dense(config, size, names, adds_bias=False, name="output")
        normalize = FusedNorm(config, name="layer_norm")
        hidden = normalize(output(inner), hidden, rate, keys[2], positions)
        hidden = constrain_rows(hidden)
        return hidden, hidden
