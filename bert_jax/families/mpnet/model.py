"""MPNet (`transformers`, modeling_mpnet.py): RoBERTa without a segment, and a bias for
each head and distance in the scores of every layer's attention."""

import dataclasses
import math
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.families.roberta.model import Roberta, RobertaEmbeddings, RobertaWithHeads
from bert_jax.models.attention import AttentionMask
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Packed
from bert_jax.models.layers import kernel_initializer

BUCKETS = 32  # half of them for keys after the query
_FARTHEST = 128  # this distance and all farther ones share a bucket


def buckets(length: int) -> Int[np.ndarray, "queries keys"]:
    """Returns the bucket of each pair of positions: one for each small distance, then
    wider ones on a logarithmic scale (Raffel et al. 2020)."""
    half, exact = BUCKETS // 2, BUCKETS // 4
    after = np.arange(length)[None] - np.arange(length)[:, None]
    distance = abs(after)
    # In float32 as in PyTorch, whose rounding decides at the edges of buckets.
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    scale = np.float32(math.log(_FARTHEST / exact))
    far = exact + (ratio / scale * (half - exact)).astype(int)
    far = np.minimum(far, half - 1)
    return np.where(distance < exact, distance, far) + half * (after > 0)


class RelativeBias(nn.Module):
    """A number for each bucket and head."""

    config: BertConfig

    @nn.compact
    def __call__(self, length: int) -> Float[Array, "1 heads length length"]:
        init = kernel_initializer(self.config, ("buckets", "heads"))
        shape = (BUCKETS, self.config.num_attention_heads)
        table = jnp.asarray(self.param("embedding", init, shape))
        return jnp.moveaxis(table[buckets(length)], 2, 0)[None]


class MPNetEmbeddings(RobertaEmbeddings):
    """Token + position, LayerNorm, dropout."""

    has_types: ClassVar[bool] = False


class MPNet(Roberta):
    """The part that every task shares: 109,486,464 parameters for Base, with the
    pooler."""

    embeds: ClassVar = MPNetEmbeddings

    def setup(self) -> None:
        super().setup()
        self.relative_bias = RelativeBias(self.config)

    def attention_mask(
        self, input_mask: Int[Array, "batch length"], packed: Packed | None
    ) -> AttentionMask:
        """Returns the mask with biases. In packed rows distances inside a sequence are
        those in the row."""
        mask = super().attention_mask(input_mask, packed)
        bias = self.relative_bias(input_mask.shape[1])
        return dataclasses.replace(mask, position_bias=bias)


class MPNetWithHeads(RobertaWithHeads):
    """MPNet with any set of heads."""

    trunk: ClassVar = MPNet
