"""RoBERTa (Liu et al. 2019, and fairseq, models/roberta): BERT's encoder with positions
that begin after that of padding, and custom heads."""

from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.families.roberta import PAD
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Bert
from bert_jax.models.heads import HiddenLayer
from bert_jax.models.layers import Embedding, dropout, layer_norm

FIRST = PAD + 1  # the position of a text's first token


class RobertaEmbeddings(nn.Module):
    """Token + position + the one segment, LayerNorm, dropout."""

    config: BertConfig
    has_types: ClassVar[bool] = True  # has the one segment

    def setup(self) -> None:
        config = self.config
        rows = config.max_position_embeddings + FIRST
        self.word_embeddings = Embedding(config, config.vocab_size, "vocab")
        if self.has_types:
            self.token_type_embeddings = Embedding(config, 1, "token_type")
        self.position_embeddings = Embedding(config, rows, "position")
        self.layer_norm = layer_norm(config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        key: Key[Array, ""] | None,
        position_ids: Int[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length hidden"]:
        """Embeds a batch, as BERT's `Embeddings` does. In training, padding follows a
        row's tokens. A row of several texts may have more tokens than there are
        positions."""
        del segment_ids
        length, real = input_ids.shape[1], input_ids != PAD
        if position_ids is None:
            if length > self.config.max_position_embeddings:
                raise ValueError(
                    f"{length} tokens; max_position_embeddings="
                    f"{self.config.max_position_embeddings}"
                )
            if key is None:
                position_ids = jnp.cumsum(real, axis=1) - 1  # counts tokens
        if position_ids is None:
            # Rows of the table and no lookup, whose gradient would add up each
            # position.
            table = self.position_embeddings.table
            positions = jnp.where(
                real[..., None], table[FIRST : FIRST + length], table[PAD]
            )
        else:
            positions = self.position_embeddings(
                jnp.where(real, position_ids + FIRST, PAD)
            )
        total = self.word_embeddings(input_ids)
        if self.has_types:
            total += self.token_type_embeddings.table[0]
        normed = self.layer_norm(total + positions)
        return dropout(normed, self.config.hidden_dropout_prob, key)


class Roberta(Bert):
    """The part that every task shares, called as `Bert` is: 124,645,632 parameters for
    Base, as released, with the pooler."""

    embeds: ClassVar = RobertaEmbeddings


class RobertaWithHeads(BertWithHeads):
    """RoBERTa with any set of heads. Its classifier of texts is fairseq's
    RobertaClassificationHead."""

    trunk: ClassVar = Roberta
    hidden_layers: ClassVar = {"sequence_classification": HiddenLayer(jnp.tanh, True)}
