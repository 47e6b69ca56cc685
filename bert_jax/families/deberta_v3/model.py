"""DeBERTa-v3 (He et al. 2021, microsoft/DeBERTa, and `transformers`,
modeling_deberta_v2.py): BERT's layers without positions in their input.

The score of a query and a key is a sum of three products: content with content, the
query's content with the distance, and the key's content with the distance. Distances
have vectors that all layers share, projected by each layer's own queries and keys.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.families.electra.model import ElectraDiscriminator, ElectraWithHeads
from bert_jax.models.attention import AttentionMask, SelfAttention
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Bert, Encoded, EncoderLayer, Packed
from bert_jax.models.heads import HiddenLayer
from bert_jax.models.layers import (
    Dense,
    Embedding,
    dropout,
    gather_positions,
    gelu,
    kernel_initializer,
    layer_norm,
)
from bert_jax.models.matmul import multiplied_einsum
from bert_jax.types import DropoutKey

BLOCK = 128  # positions that are compared with distances at once


def distance_rows(
    length: int, buckets: int, max_distance: int
) -> Int[np.ndarray, "distances"]:
    """Returns the row of the table for each distance from -(length - 1) to length, of
    a query's position minus a key's.

    A row has one small distance, or several large ones, on a logarithmic scale up to
    `max_distance`.
    """
    half, distance = buckets // 2, np.arange(2 * length) - (length - 1)
    # In float32 as in PyTorch, whose rounding decides at the edges of buckets.
    far = np.maximum(abs(distance), half).astype(np.float32)
    scale = np.log(np.float32(max(max_distance - 1, half + 1) / half))
    steps = np.log(far / np.float32(half)) / scale * np.float32(half - 1)
    bucket = np.sign(distance) * (np.ceil(steps).astype(int) + half)
    near = abs(distance) <= half
    return np.clip(np.where(near, distance, bucket) + buckets, 0, 2 * buckets - 1)


def skew(scores: Float[Array, "... rows columns"]) -> Float[Array, "... rows length"]:
    """Returns, for row i and column j, column j - i + rows - 1 of the row, of as many
    columns less than given as there are rows. It moves no element of a row alone, and
    neither does its gradient."""
    *outer, rows, columns = scores.shape
    flat = scores.reshape(*outer, rows * columns)[..., rows - 1 : -1]
    return flat.reshape(*outer, rows, columns - 1)[..., : columns - rows]


def compare(
    contents: Float[Array, "batch length heads head_dim"],
    distances: Float[Array, "distances heads head_dim"],
) -> Float[Array, "batch heads length length"]:
    """Returns, for positions i and j, the product of content i with distance
    j - i + length - 1 of twice as many, in float32.

    A block of positions is multiplied with the distances that it has only.
    """
    batch, length, heads, size = contents.shape
    block = length if length % BLOCK else BLOCK
    first = np.arange(length - block, -1, -block)[:, None]
    distances = jnp.moveaxis(distances[first + np.arange(length + block)], 2, 0)
    # With the same axes in front XLA's CPU compiler multiplies without transposing.
    distances = jnp.broadcast_to(distances, (batch, *distances.shape))
    blocks = jnp.swapaxes(contents, 1, 2).reshape(batch, heads, -1, block, size)
    # [batch, heads, blocks, block, length + block]
    scores = multiplied_einsum("bhnqd,bhnrd->bhnqr", blocks, distances, jnp.float32)
    return skew(scores).reshape(batch, heads, length, length)


@flax.struct.dataclass
class DisentangledMask(AttentionMask):
    """The attention mask, with the vectors of distances."""

    distances: Float[Array, "rows hidden"] | None = None


class DisentangledAttention(SelfAttention):
    """Self-attention whose scores also compare contents with distances."""

    selects_queries: ClassVar[bool] = False

    def add_positions(
        self,
        query: Float[Array, "batch length heads head_dim"],
        keys: Float[Array, "batch length heads head_dim"],
        mask: AttentionMask,
        projections: tuple[Dense, Dense],
        key: DropoutKey,
    ) -> tuple[Float[Array, "batch length heads head_dim"], AttentionMask]:
        """Returns the queries, scaled for a sum of three products, and the mask with
        the other two."""
        assert isinstance(mask, DisentangledMask) and mask.distances is not None
        config = self.config
        rows = distance_rows(
            query.shape[1],
            config.field("position_buckets"),
            config.max_position_embeddings,
        )
        used = np.arange(rows.min(), rows.max() + 1)
        key = None if key is None else jax.random.fold_in(key, 1)
        table = dropout(
            mask.distances[used[0] : used[-1] + 1],
            config.hidden_dropout_prob,
            key,
            jnp.asarray(used),
        )
        scale = (3 * config.head_dim) ** -0.5
        # [distances, heads, head_dim]
        distance_queries, distance_keys = (each(table) * scale for each in projections)
        # `compare` takes distances in the order of the other side's positions.
        descending = np.roll(rows[::-1], -1)
        by_query = compare(query, distance_keys[descending - used[0]])
        by_key = compare(keys, distance_queries[rows - used[0]])
        bias = by_query + jnp.swapaxes(by_key, 2, 3)
        return query * 3**-0.5, dataclasses.replace(mask, position_bias=bias)


class Layer(EncoderLayer):
    """BERT's layer with disentangled attention."""

    attends: ClassVar = DisentangledAttention

    @staticmethod
    def flops(config: BertConfig, length: int, index: int) -> int:
        """Returns BERT's, and the products of queries and of keys with distances."""
        distances = min(2 * length, 2 * config.field("position_buckets"))
        products = 2 * 2 * length * distances * config.hidden_size
        return EncoderLayer.flops(config, length, index) + products


class AddedEmbedding(Embedding):
    """A table that is added to another one, which learns nothing from the sum: the
    paper's gradient-disentangled embedding sharing."""

    base: nn.Module | None = None

    def setup(self) -> None:
        zeros = nn.initializers.zeros_init()
        init = nn.with_logical_partitioning(zeros, (self.axis, "embed"))
        shape = (self.rows, self.config.embedding_size)
        self.embedding = self.param("embedding", init, shape)

    def __call__(self, ids: Int[Array, "..."]) -> Float[Array, "... hidden"]:
        assert self.base is not None
        return super().__call__(ids) + jax.lax.stop_gradient(self.base(ids))


class DebertaEmbeddings(nn.Module):
    """Token, LayerNorm, dropout."""

    config: BertConfig
    base: nn.Module | None = None  # see `AddedEmbedding`

    def setup(self) -> None:
        config = self.config
        size = config.vocab_size, "vocab"
        if self.base is None:
            self.word_embeddings = Embedding(config, *size)
        else:
            self.word_embeddings = AddedEmbedding(config, *size, self.base)
        self.layer_norm = layer_norm(config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        segment_ids: Any,
        key: DropoutKey,
        position_ids: Any = None,
    ) -> Float[Array, "batch length hidden"]:
        """Embeds a batch. Takes the arguments of BERT's `Embeddings`, of which only ids
        and key count."""
        del segment_ids, position_ids
        normed = self.layer_norm(self.word_embeddings(input_ids))
        return dropout(normed, self.config.hidden_dropout_prob, key)


class DistanceEmbeddings(nn.Module):
    """A vector for each bucket of distances, and their LayerNorm."""

    config: BertConfig

    @nn.compact
    def __call__(self) -> Float[Array, "rows hidden"]:
        init = kernel_initializer(self.config, ("buckets", "embed"))
        shape = (2 * self.config.field("position_buckets"), self.config.hidden_size)
        table = jnp.asarray(self.param("embedding", init, shape))
        return layer_norm(self.config, name="layer_norm")(table)


class Deberta(Bert):
    """The part that every task shares: 183,831,552 parameters for Base."""

    has_pooler: ClassVar[bool] = False
    has_positions: ClassVar[bool] = False
    base: nn.Module | None = None  # see `AddedEmbedding`

    def embeds(self, config: BertConfig) -> nn.Module:
        return DebertaEmbeddings(config, self.base)

    def setup(self) -> None:
        super().setup()
        self.distances = DistanceEmbeddings(self.config)

    def attention_mask(
        self, input_mask: Int[Array, "batch length"], packed: Packed | None
    ) -> AttentionMask:
        """Returns the mask with the vectors of distances. In packed rows distances
        inside a sequence are those in the row."""
        mask = super().attention_mask(input_mask, packed)
        return DisentangledMask(**vars(mask), distances=self.distances())


class DebertaDiscriminator(ElectraDiscriminator):
    """ELECTRA's, which also reads the vector of [CLS]."""

    def inputs(
        self, encoded: Encoded, packed: Packed | None
    ) -> Float[Array, "batch length hidden"]:
        first = encoded.first[:, None]
        if packed is not None:
            index = jnp.maximum(packed.sequence_ids - 1, 0)
            first = gather_positions(encoded.first, index)
        return layer_norm(self.config, name="layer_norm")(first + encoded.sequence)


_POOLER = HiddenLayer(gelu, drops_input=False)


class DebertaWithHeads(ElectraWithHeads):
    """DeBERTa-v3 with any set of heads."""

    trunk: ClassVar = Deberta
    hidden_layers: ClassVar = {
        "sequence_classification": _POOLER,
        "multiple_choice": _POOLER,
    }
    discriminator: ClassVar = DebertaDiscriminator
