"""BERT's multi-head self-attention (modeling.py, attention_layer)."""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.models.config import MASK_VALUE, BertConfig
from bert_jax.models.layers import Dense, dropout, gather_positions, platform_name
from bert_jax.models.matmul import multiplied_einsum
from bert_jax.types import DropoutKey


@flax.struct.dataclass
class AttentionMask:
    """The attention mask: a query attends to the keys that have its id and are at most
    `window` positions away in the row. It also has each token's position.

    Attributes:
      query_ids: Id of each query, or one for all queries of a row.
      key_ids: Id of each key.
      position_ids: Position of each token in its sequence. None means unknown.
      window: Maximum distance of a key. 0 means any.
      query_positions: Positions of the queries in the row. None means as many queries
        as keys.
      position_bias: Numbers added to the scores of each head, not by kernels. None
        means 0.
    """

    query_ids: Int[Array, "batch #queries"]
    key_ids: Int[Array, "batch length"]
    position_ids: Int[Array, "#batch length"] | None = None
    window: int = flax.struct.field(pytree_node=False, default=0)
    query_positions: Int[Array, "batch positions"] | None = None
    position_bias: Float[Array, "#batch heads queries length"] | None = None

    @property
    def ids(self) -> tuple[Int[Array, "batch #queries"], Int[Array, "batch length"]]:
        """The ids of queries and keys, in the form that kernels take."""
        return self.query_ids, self.key_ids

    @classmethod
    def from_input_mask(cls, input_mask: Int[Array, "batch length"]) -> "AttentionMask":
        """Returns a mask: every query attends to every token, not to padding."""
        ones, ids = jnp.ones_like(input_mask[:, :1]), jnp.where(input_mask == 0, 0, 1)
        return cls(ones, ids, jnp.arange(input_mask.shape[1])[None])

    def with_window(self, window: int) -> "AttentionMask":
        """Limits the mask to `window` positions on each side of a query."""
        return dataclasses.replace(self, window=window)

    def select_queries(
        self, positions: Int[Array, "batch positions"]
    ) -> "AttentionMask":
        """Returns the mask of the queries at these positions only."""
        queries = self.query_ids
        if queries.shape[1] > 1:
            queries = jnp.take_along_axis(queries, positions, axis=1)
        bias = self.position_bias
        if bias is not None:
            index = positions[:, None, :, None]  # [batch, 1, positions, 1]
            bias = jnp.take_along_axis(bias, index, axis=2)
        return dataclasses.replace(
            self, query_ids=queries, query_positions=positions, position_bias=bias
        )

    def bias(
        self, causal: bool = False
    ) -> Float[Array, "batch #heads #queries length"]:
        """Returns 0 where a query attends, else -10,000 (modeling.py), and the bias of
        positions. The exponential of -10,000 is exactly 0 in float32.

        Args:
          causal: Whether a query attends to no position after its own.
        """
        # [batch, queries or 1, length]
        mask = self.query_ids[:, :, None] == self.key_ids[:, None, :]
        place = jnp.arange(self.key_ids.shape[1])
        positions = (
            place[None] if self.query_positions is None else self.query_positions
        )
        after = positions[:, :, None] - place  # the query's position minus the key's
        if causal:
            mask = mask & (after >= 0)
        if self.window:
            mask = mask & (abs(after) <= self.window)
        hidden = jnp.where(mask, 0.0, MASK_VALUE).astype(jnp.float32)[:, None]
        return hidden if self.position_bias is None else hidden + self.position_bias


def einsum_attention(
    query: Float[Array, "batch queries heads head_dim"],
    keys: Float[Array, "batch length heads head_dim"],
    value: Float[Array, "batch length heads head_dim"],
    mask: AttentionMask,
    rate: float,
    key: DropoutKey,
    causal: bool = False,
) -> tuple[
    Float[Array, "batch queries heads head_dim"],
    Float[Array, "batch heads queries length"],
]:
    """Computes softmax attention in float32, as `model.attention=einsum`. `key` is for
    dropout of the probabilities.

    Returns:
      The mixed values, and the probabilities before dropout. Another attention may
      return None for the probabilities.
    """
    # With the heads in front XLA's CPU compiler multiplies without transposing.
    query, keys, value = (jnp.swapaxes(x, 1, 2) for x in (query, keys, value))
    # [batch, heads, queries, length]
    scores = multiplied_einsum("bhqd,bhkd->bhqk", query, keys, jnp.float32)
    scale, bias = query.shape[-1] ** 0.5, mask.bias(causal)
    if key is None:  # divide the mixed values, a smaller array than the probabilities
        biased = scores + bias * scale
        maximum = jax.lax.stop_gradient(jnp.max(biased, axis=-1, keepdims=True))
        weights = jnp.exp((biased - maximum) / scale)  # [batch, heads, queries, length]
        total = jnp.sum(weights, axis=-1, keepdims=True)  # [batch, heads, queries, 1]
        kept, probs = weights.astype(query.dtype), weights / total
        sums = multiplied_einsum("bhqk,bhkd->bhqd", kept, value, jnp.float32)
        mixed = (sums / total).astype(query.dtype)
    else:
        probs = jax.nn.softmax(scores / scale + bias, axis=-1)
        positions = (
            None if mask.query_positions is None else mask.query_positions[:, None]
        )
        kept = dropout(probs, rate, key, positions).astype(query.dtype)
        # [batch, heads, queries, head_dim]
        mixed = multiplied_einsum("bhqk,bhkd->bhqd", kept, value, query.dtype)
    return jnp.swapaxes(mixed, 1, 2), probs  # [batch, queries, heads, head_dim]


class SelfAttention(nn.Module):
    """Query, key and value, the attention, and the output projection.

    Attributes:
      config: The model's sizes.
      adds_bias: Whether it adds the last bias. If not, it returns the product and the
        bias.
      selects_queries: Whether it can be computed for some queries only.
    """

    config: BertConfig
    adds_bias: bool = True
    selects_queries: ClassVar[bool] = True

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        mask: AttentionMask,
        key: DropoutKey,
        positions: Int[Array, "batch positions"] | None = None,
    ) -> Any:
        """Returns [batch, queries, hidden] at `positions`, or at every position for
        None."""
        config = self.config
        size = (config.num_attention_heads, config.head_dim)
        into_heads = ("embed", "heads", "head_dim")
        projections = [
            Dense(config, size, into_heads, name=name)
            for name in ("query", "key", "value")
        ]
        mixed = self.mix(hidden, mask, key, positions, *projections)
        output = Dense(
            config,
            (config.hidden_size,),
            ("heads", "head_dim", "embed"),
            inputs=2,
            adds_bias=self.adds_bias,
            name="output",
        )
        return output(mixed)

    def mix(
        self,
        hidden: Float[Array, "batch length hidden"],
        mask: AttentionMask,
        key: DropoutKey,
        positions: Int[Array, "batch positions"] | None,
        query: Dense,
        keys: Dense,
        values: Dense,
    ) -> Float[Array, "batch queries heads head_dim"]:
        """Returns the values that each query mixes, by these linear layers."""
        config, rotate = self.config, self.config.position_encoding.rotate
        # A kernel takes as many queries as keys.
        all_ask = (
            config.attention != "einsum"
            or rotate is not None
            or not self.selects_queries
        )
        asking = hidden
        if positions is not None and not all_ask:
            asking = gather_positions(hidden, positions)
            mask = mask.select_queries(positions)
        # [batch, queries, heads, head_dim], [batch, length, heads, head_dim] twice
        three = query(asking), keys(hidden), values(hidden)
        if rotate is not None:
            three = (*rotate(config, *three[:2], mask.position_ids), three[2])
        scaled, mask = self.add_positions(*three[:2], mask, (query, keys), key)
        rate = config.attention_probs_dropout_prob
        mixed, probs = config.attend(scaled, *three[1:], mask, rate, key, config.causal)
        if probs is not None and positions is None:
            self.sow("intermediates", "probabilities", probs)  # kept on request
        if positions is not None and all_ask:
            mixed = gather_positions(mixed, positions)
        return mixed

    def add_positions(
        self,
        query: Float[Array, "batch queries heads head_dim"],
        keys: Float[Array, "batch length heads head_dim"],
        mask: AttentionMask,
        projections: tuple[Dense, Dense],
        key: DropoutKey,
    ) -> tuple[Float[Array, "batch queries heads head_dim"], AttentionMask]:
        """Returns the queries and the mask with which scores are computed. A family
        adds biases of positions.

        Args:
          projections: The linear layers of queries and keys.
          key: Dropout key of the layer's attention.
        """
        del keys, projections, key
        return query, mask


def self_attention(config: BertConfig, **fields: Any) -> SelfAttention:
    """Returns the module of a config's attention. A GPU's kernel takes one product of
    queries, keys and values, unless positions rotate them."""
    fused = config.attention == "fused" and config.position_encoding.rotate is None
    if fused and platform_name() != "tpu":
        from bert_jax.models.fused import FusedSelfAttention  # Triton is slow to import

        return FusedSelfAttention(config, **fields)
    return SelfAttention(config, **fields)
