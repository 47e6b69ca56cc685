"""BERT's multi-head self-attention (modeling.py, attention_layer)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.models.config import BertConfig
from bert_jax.models.layers import Dense, dropout
from bert_jax.models.products import product


def attention_bias(
    input_mask: Int[Array, "batch length"],
) -> Float[Array, "batch 1 1 length"]:
    """0 at tokens and -10,000 at padding (modeling.py)."""
    padding: Bool[Array, "batch length"] = input_mask == 0
    return jnp.where(padding, -1e4, 0.0).astype(jnp.float32)[:, None, None, :]


def sequence_bias(
    sequence_ids: Int[Array, "batch length"],
) -> Float[Array, "batch 1 length length"]:
    """0 between positions with the same id, else -10,000.

    Its exponential is exactly 0 in float32, so sequences of one row do not change each
    other's results in any bit.
    """
    same = sequence_ids[:, :, None] == sequence_ids[:, None, :]
    return jnp.where(same, 0.0, -1e4).astype(jnp.float32)[:, None]


class SelfAttention(nn.Module):
    """Query, key and value, the softmax in float32, and the output projection."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        bias: Float[Array, "batch 1 queries length"],
        key: Key[Array, ""] | None,
    ) -> Float[Array, "batch length hidden"]:
        config = self.config
        heads = (config.num_attention_heads, config.head_dim)
        into_heads = ("embed", "heads", "head_dim")
        query = Dense(config, heads, into_heads, name="query")(hidden)
        keys = Dense(config, heads, into_heads, name="key")(hidden)
        value = Dense(config, heads, into_heads, name="value")(hidden)

        scores = product("bqhd,bkhd->bhqk", query, keys, jnp.float32)
        probs = jax.nn.softmax(scores / config.head_dim**0.5 + bias, axis=-1)
        probs = dropout(probs, config.attention_probs_dropout_prob, key)
        probs = probs.astype(config.dtype)
        mixed = product("bhqk,bkhd->bqhd", probs, value, config.dtype)
        out_of_heads = ("heads", "head_dim", "embed")
        features = (config.hidden_size,)
        return Dense(config, features, out_of_heads, inputs=2, name="output")(mixed)
