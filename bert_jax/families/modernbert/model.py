"""ModernBERT (Warner et al. 2024, and `transformers`, modeling_modernbert.py).

LayerNorm comes before attention and feed-forward, and after the last layer. There are
no biases. Every third layer sees the whole text, the others a window.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.families.modernbert.rotary import rotary
from bert_jax.models.architectures import LINEAR_HEADS, BertWithHeads
from bert_jax.models.attention import AttentionMask, SelfAttention
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Bert, Encoded, Encoder, Layer, Packed
from bert_jax.models.heads import BertForPreTraining, MaskedLmHead
from bert_jax.models.layers import ACTIVATION_FUNCTIONS as ACTS
from bert_jax.models.layers import (
    Dense,
    Embedding,
    constrain_rows,
    dropout,
    gather_positions,
    layer_keys,
    layer_norm,
    masked_means,
    shared_initializer,
)

GLOBAL, LOCAL = rotary("global_rope_theta"), rotary("local_rope_theta")


def initializer(
    config: BertConfig, names: tuple[str, ...]
) -> nn.initializers.Initializer:
    """Returns that of `_init_weights` in `transformers`: a smaller deviation into the
    residual stream."""
    stddev = config.initializer_range
    if names[-1] == "labels":
        stddev = config.hidden_size**-0.5
    elif names[0] in ("heads", "mlp") or names[-1] == "pooled":
        stddev *= (2 * config.num_hidden_layers) ** -0.5
    return shared_initializer(nn.initializers.truncated_normal, stddev)


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
        segment_ids: Any,
        key: Any,
        position_ids: Any = None,
    ) -> Float[Array, "batch length hidden"]:
        """Embeds a batch.

        Takes the arguments of BERT's `Embeddings`, but only ids count. A row of several
        texts, which has `position_ids`, may have more tokens than there are positions.
        """
        length, limit = input_ids.shape[1], self.config.max_position_embeddings
        if length > limit and position_ids is None:
            raise ValueError(f"{length} tokens; max_position_embeddings={limit}")
        return self.layer_norm(self.word_embeddings(input_ids))


class ModernBertLayer(Layer):
    """Attention and GeGLU, each after a LayerNorm and added to its input.

    The first layer's attention reads the embeddings, which have their own LayerNorm.
    """

    final_norm: ClassVar = staticmethod(layer_norm)
    takes_positions: ClassVar[bool] = True

    @staticmethod
    def flops(config: BertConfig, length: int, index: int) -> int:
        """Returns the FLOPs of a layer with GeGLU, and perhaps a window."""
        hidden, inner, seen = config.hidden_size, config.intermediate_size, length
        if index % config.field("global_attn_every_n_layers"):
            seen = min(length, config.field("local_attention") + 1)
        projections = 2 * length * (4 * hidden * hidden + 3 * hidden * inner)
        return int(projections + 2 * 2 * length * seen * hidden)

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        index: int,
        mask: AttentionMask,
        key: Key[Array, ""] | None,
        positions: Int[Array, "batch positions"] | None = None,
    ) -> tuple[Array, Array]:
        """Encodes as `EncoderLayer` does."""
        config, rate = self.config, self.config.hidden_dropout_prob
        keys = layer_keys(key, index, 2)
        attends = config
        if index % config.field("global_attn_every_n_layers"):
            attends = dataclasses.replace(config, position_encoding=LOCAL)
            mask = mask.with_window(config.field("local_attention") // 2)

        normed = hidden
        if index:
            normed = layer_norm(config, name="attention_layer_norm")(hidden)
        attention = SelfAttention(attends, name="attention")
        attended = attention(normed, mask, keys[0], positions)
        hidden = hidden if positions is None else gather_positions(hidden, positions)
        hidden = hidden + dropout(attended, rate, keys[1], positions)

        normed = layer_norm(config, name="layer_norm")(hidden)
        size, names = (2, config.intermediate_size), ("embed", "gated", "mlp")
        both = Dense(config, size, names, name="intermediate")(normed)
        inner = ACTS[config.hidden_act](both[:, :, 0]) * both[:, :, 1]
        output = Dense(config, (config.hidden_size,), ("mlp", "embed"), name="output")
        hidden = constrain_rows(hidden + output(inner))
        return hidden, hidden


class PredictionHead(nn.Module):
    """Dense, activation and LayerNorm, whose output every head of the model reads."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden: Float[Array, "..."]) -> Float[Array, "..."]:
        config, names = self.config, ("embed", "pooled")
        dense = Dense(config, (config.hidden_size,), names, name="dense")
        acted = ACTS[config.hidden_act](dense(hidden))
        return layer_norm(config, name="layer_norm")(acted)


class Decoder(MaskedLmHead):
    """The logits of tokens, from the output of `PredictionHead`."""

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch positions hidden"],
        embedding: Float[Array, "vocab hidden"],
        training: bool = False,
    ) -> Float[Array, "batch positions vocab"]:
        return self.vocabulary_logits(hidden, embedding, training)


class ModernBert(Bert):
    """The part that every task shares, called as `Bert` is: 148,424,448 parameters for
    Base, without the head."""

    embeds: ClassVar = ModernBertEmbeddings
    has_positions: ClassVar[bool] = False

    def setup(self) -> None:
        self.embeddings = self.embeds(self.config)
        self.encoder = Encoder(self.config)
        # Shared by all heads. A model without heads has no parameters of it.
        self.head = PredictionHead(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        key: Key[Array, ""] | None = None,
        packed: Packed | None = None,
        positions: Int[Array, "batch positions"] | None = None,
    ) -> Encoded:
        """Encodes a batch as `Bert` does.

        `first` and `pooled` are each [CLS]'s vector or, by `classifier_pooling`, each
        text's mean.
        """
        encoded = super().__call__(
            input_ids, input_mask, segment_ids, key, packed, positions
        )
        if self.config.field("classifier_pooling") == "cls":
            return encoded
        if packed is None:
            first = self.cls_vector(encoded.sequence, input_mask)
        else:
            ids, count = packed.sequence_ids - 1, packed.cls_positions.shape[1]
            first = masked_means(encoded.sequence, ids, count)
        return encoded._replace(first=first, pooled=first)

    def cls_vector(
        self,
        sequence: Float[Array, "batch length hidden"],
        input_mask: Int[Array, "batch length"],
    ) -> Float[Array, "batch hidden"]:
        """Returns the vectors of `Bert.cls_vector`, or each text's mean."""
        if self.config.field("classifier_pooling") == "cls":
            return super().cls_vector(sequence, input_mask)
        return masked_means(sequence, input_mask - 1, 1)[:, 0]

    def pool(
        self, first: Float[Array, "batch *sequences hidden"]
    ) -> Float[Array, "batch *sequences hidden"]:
        """Returns `first` as it is: `head` follows."""
        return first


class ModernBertWithHeads(BertWithHeads):
    """ModernBERT with any set of heads, which all read `ModernBert.head`."""

    trunk: ClassVar = ModernBert

    @staticmethod
    def uses_pooler(head: str) -> bool:
        """Returns False, because there is no pooler."""
        return False

    def _masked_lm(self, bert: Any, encoded: Encoded) -> Float[Array, "..."]:
        read, matrix = bert.head(encoded.sequence), bert.embeddings.word_embeddings
        return Decoder(self.config, name="masked_lm")(read, matrix.table)

    def _linear(
        self, bert: Any, head: str, encoded: Encoded, key: Any, rows: tuple[int, ...]
    ) -> Float[Array, "..."]:
        read = bert.head(getattr(encoded, LINEAR_HEADS[head][0]))
        return self._dense(head, dropout(read, self.config.hidden_dropout_prob, key))


class ModernBertForPreTraining(BertForPreTraining):
    """ModernBERT with its masked LM."""

    trunk: Any = ModernBert
    lm_head: ClassVar = Decoder
    has_nsp_head: bool = False

    def token_logits(
        self, hidden: Float[Array, "..."], training: bool = False
    ) -> Float[Array, "..."]:
        return super().token_logits(self.bert.head(hidden), training)
