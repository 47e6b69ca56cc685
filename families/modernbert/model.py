"""ModernBERT (Warner et al. 2024; `transformers`, modeling_modernbert.py).

LayerNorm before attention and feed-forward, and once after the last layer; no biases;
every third layer sees the whole text, the others a window.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.models import pooling
from bert_jax.models.architectures import LINEAR_HEADS, BertWithHeads
from bert_jax.models.attention import Seen, SelfAttention
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Bert, Encoder, Packed, constrain
from bert_jax.models.layers import (
    ACTIVATION_FUNCTIONS,
    Dense,
    Embedding,
    dropout,
    layer_norm,
)
from bert_jax.models.matmul import product


class ModernBertEmbeddings(nn.Module):
    """Token, LayerNorm."""

    config: BertConfig

    def setup(self) -> None:
        config = self.config
        self.word_embeddings = Embedding(config, config.vocab_size, "vocab")
        self.layer_norm = layer_norm(config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        key: Key[Array, ""] | None,
        position_ids: Int[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length hidden"]:
        """Called as BERT's `Embeddings` is."""
        del segment_ids, position_ids  # no segments; positions are turned
        del key  # nothing is dropped
        length, most = input_ids.shape[1], self.config.max_position_embeddings
        if length > most:
            raise ValueError(f"{length} tokens; max_position_embeddings={most}")
        return self.layer_norm(self.word_embeddings(input_ids))


class Layer(nn.Module):
    """Attention and GeGLU, each after a LayerNorm and added to its input; the first
    layer's attention reads the embeddings, which have theirs."""

    config: BertConfig
    after: ClassVar[Callable[..., nn.Module]] = staticmethod(layer_norm)

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        index: int,
        seen: Seen,
        key: Key[Array, ""] | None,
    ) -> tuple[
        Float[Array, "batch length hidden"], Float[Array, "batch length hidden"]
    ]:
        """As `EncoderLayer`."""
        config, rate = self.config, self.config.hidden_dropout_prob
        keys = (None, None)
        if key is not None:
            keys = tuple(jax.random.split(jax.random.fold_in(key, index)))
        attends = config
        if index % config.field("global_attn_every_n_layers"):
            attends = dataclasses.replace(config, positions=f"{config.positions}_local")
            seen = seen.within(config.field("local_attention") // 2)

        normed = hidden
        if index:
            normed = layer_norm(config, name="attention_layer_norm")(hidden)
        attended = SelfAttention(attends, name="attention")(normed, seen, keys[0])
        hidden = hidden + dropout(attended, rate, keys[1])

        normed = layer_norm(config, name="layer_norm")(hidden)
        size, names = (2, config.intermediate_size), ("embed", "gated", "mlp")
        both = Dense(config, size, names, name="intermediate")(normed)
        inner = ACTIVATION_FUNCTIONS[config.hidden_act](both[:, :, 0]) * both[:, :, 1]
        output = Dense(config, (config.hidden_size,), ("mlp", "embed"), name="output")
        hidden = constrain(hidden + output(inner))
        return hidden, hidden


class PredictionHead(nn.Module):
    """Dense, activation, LayerNorm: what every head of the model reads."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "... hidden"]
    ) -> Float[Array, "... hidden"]:
        config = self.config
        names = ("embed", "pooled")
        dense = Dense(config, (config.hidden_size,), names, name="dense")
        acted = ACTIVATION_FUNCTIONS[config.hidden_act](dense(hidden))
        return layer_norm(config, name="layer_norm")(acted)


class Decoder(nn.Module):
    """The logits of pieces: products with the embeddings, and a bias."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch positions hidden"],
        matrix: Float[Array, "vocab hidden"],
    ) -> Float[Array, "batch positions vocab"]:
        zeros = nn.initializers.zeros_init()
        boxed = nn.with_logical_partitioning(zeros, ("vocab",))
        bias = self.param("bias", boxed, (self.config.vocab_size,))
        rows = hidden.reshape(-1, self.config.hidden_size)
        logits = product("ri,oi->ro", rows, matrix, jnp.float32)
        return logits.reshape(*hidden.shape[:-1], -1) + jnp.asarray(bias)


class ModernBert(Bert):
    """The part that every task shares, called as `Bert` is: 148,424,448 parameters for
    Base, without the head."""

    embeds: ClassVar = ModernBertEmbeddings

    def setup(self) -> None:
        self.embeddings = self.embeds(self.config)
        self.encoder = Encoder(self.config)
        # Of all heads; a model without any has no parameters of it.
        self.head = PredictionHead(self.config)

    def first(
        self,
        sequence: Float[Array, "batch length hidden"],
        input_mask: Int[Array, "batch length"],
        packed: Packed | None = None,
    ) -> Float[Array, "batch *sequences hidden"]:
        """The vector of each [CLS] or, by `classifier_pooling`, each text's mean."""
        if self.config.field("classifier_pooling") == "cls":
            return super().first(sequence, input_mask, packed)
        if packed is None:
            return pooling.means(sequence, input_mask - 1, 1)[:, 0]
        count = packed.cls_positions.shape[1]
        return pooling.means(sequence, packed.sequence_ids - 1, count)

    def pool(
        self, first: Float[Array, "batch *sequences hidden"]
    ) -> Float[Array, "batch *sequences hidden"]:
        """As it is: `head` follows."""
        return first


class ModernBertWithHeads(BertWithHeads):
    """ModernBERT with any set of heads, which all read `ModernBert.head`."""

    @staticmethod
    def uses_pooler(head: str) -> bool:
        """There is none."""
        return False

    def _masked_lm(self, bert: Any, encoded: Any) -> Float[Array, "..."]:
        matrix = bert.embeddings.word_embeddings.table
        return Decoder(self.config, name="masked_lm")(
            bert.head(encoded.sequence), matrix
        )

    def _linear(
        self,
        bert: Any,
        head: str,
        encoded: Any,
        key: Key[Array, ""] | None,
        rows: tuple[int, ...],
    ) -> Float[Array, "..."]:
        del rows
        read = encoded.sequence
        if LINEAR_HEADS[head][0] == "pooled":
            read = encoded.pooled
        rate = self.config.hidden_dropout_prob
        return self._dense(head, dropout(bert.head(read), rate, key))


class ModernBertForPreTraining(nn.Module):
    """ModernBERT with its masked LM, called as `BertForPreTraining` is."""

    config: BertConfig

    def setup(self) -> None:
        self.bert = ModernBert(self.config)
        self.masked_lm = Decoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        masked_lm_positions: Int[Array, "batch predictions"],
        key: Key[Array, ""] | None = None,
        packed: Packed | None = None,
    ) -> dict[str, Array]:
        """Returns `masked_lm_logits` [batch, predictions, vocab], float32."""
        encoded = self.bert(input_ids, input_mask, segment_ids, key, packed)
        places = masked_lm_positions[:, :, None]
        chosen = jnp.take_along_axis(encoded.sequence, places, axis=1)
        matrix = self.bert.embeddings.word_embeddings.table
        return {"masked_lm_logits": self.masked_lm(self.bert.head(chosen), matrix)}
