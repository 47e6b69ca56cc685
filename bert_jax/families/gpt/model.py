"""OpenAI's GPT (Radford et al. 2018, and openai/finetune-transformer-lm, train.py).

Its blocks are BERT's encoder layers where each position sees those before it: LayerNorm
after each residual. Before them only the token's and the position's vector are added,
without LayerNorm. After them there is no pooler.
"""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.models.architectures import LINEAR_HEADS, BertWithHeads
from bert_jax.models.attention import AttentionMask
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Encoded, Encoder, Packed, last_token
from bert_jax.models.heads import vocabulary_logits
from bert_jax.models.layers import (
    Embedding,
    constrain_rows,
    dropout,
    shared_initializer,
)
from bert_jax.types import DropoutKey


def initializer(config: BertConfig, names: Any) -> nn.initializers.Initializer:
    """Returns a normal distribution that is not cut, whatever the array."""
    del names
    return shared_initializer(nn.initializers.normal, config.initializer_range)


class GptEmbeddings(nn.Module):
    """Token + position, dropout.

    Dropout is applied to the sum, as in `transformers`. In the published code it drops
    numbers of the tables, the same ones for all of a batch.
    """

    config: BertConfig

    def setup(self) -> None:
        config = self.config
        self.word_embeddings = Embedding(config, config.vocab_size, "vocab")
        if (added := config.position_encoding.embedding) is not None:
            self.position_embeddings = added(config)

    def __call__(
        self, input_ids: Int[Array, "batch length"], key: DropoutKey
    ) -> Float[Array, "batch length hidden"]:
        total = self.word_embeddings(input_ids)
        if self.config.position_encoding.embedding is not None:
            total += self.position_embeddings.embed(input_ids.shape[1], None)
        # As LayerNorm does in BERT: the layers after this compute in this type.
        total = total.astype(self.config.dtype)
        return dropout(total, self.config.hidden_dropout_prob, key)


class Gpt(nn.Module):
    """The part that every task shares, called as `Bert` is: 116,534,784 parameters as
    released (without the rows of the special tokens)."""

    config: BertConfig
    has_positions: ClassVar[bool] = True

    def setup(self) -> None:
        self.embeddings = GptEmbeddings(self.config)
        self.encoder = Encoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        key: DropoutKey = None,
        packed: Packed | None = None,
    ) -> Encoded:
        """Encodes a batch.

        Args:
          input_ids: Ids of tokens.
          input_mask: 1 for a token, 0 for padding, which follows the tokens.
          segment_ids: Not used, because a GPT has no segments.
          key: Dropout key. None means evaluation.
          packed: Must be None, because a GPT's rows are full of running text.
        """
        del segment_ids
        if packed is not None:
            raise ValueError("a GPT has no packed rows")
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        embedded = constrain_rows(self.embeddings(input_ids, keys[0]))
        mask = AttentionMask.from_input_mask(input_mask)
        sequence, outputs = self.encoder(embedded, mask, keys[1])
        states, positions = [embedded, *outputs], last_token(input_mask)
        last = self.encoder.recompute_last_layer(states, mask, keys[1], positions)[:, 0]
        return Encoded(sequence, sequence[:, :0], last, last, states)


class GptWithHeads(BertWithHeads):
    """GPT with any set of heads. For several sequences in a row it adds the vectors."""

    trunk: ClassVar = Gpt
    # Position embeddings that the language model also scores, after the tokens, as in
    # the published code's fine-tuning, whose one table holds both.
    scored_positions: int = 0

    def _masked_lm(self, bert: nn.Module, encoded: Encoded) -> Float[Array, "..."]:
        matrix = bert.embeddings.word_embeddings.table
        if self.config.positions == "learnt":
            positions = bert.embeddings.position_embeddings.table
            matrix = jnp.concatenate([matrix, positions[: self.scored_positions]])
        return vocabulary_logits(encoded.sequence, matrix, None, training=False)

    def _linear(
        self,
        bert: nn.Module,
        head: str,
        encoded: Encoded,
        key: DropoutKey,
        rows: tuple[int, ...],
    ) -> Float[Array, "..."]:
        if len(rows) == 1:
            return super()._linear(bert, head, encoded, key, rows)
        source, drops, _ = LINEAR_HEADS[head]
        features = getattr(encoded, source).reshape(*rows, -1)
        if head == "sequence_classification":
            features = features.sum(axis=1)
        rate = self.config.hidden_dropout_prob
        if drops and features.ndim == 3:
            # All choices lose the same numbers (train.py, clf_h).
            features *= dropout(jnp.ones_like(features[:, :1]), rate, key)
        elif drops:
            features = dropout(features, rate, key)
        return self._dense(head, features)


class GptForPreTraining(nn.Module):
    """GPT with its language model, called as `BertForPreTraining` is."""

    config: BertConfig
    trunk: Any = Gpt
    has_nsp_head: bool = False

    def setup(self) -> None:
        self.bert = self.trunk(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        masked_lm_positions: Int[Array, "batch predictions"] | None,
        key: DropoutKey = None,
        packed: Packed | None = None,
    ) -> dict[str, Array]:
        """Computes the language model's logits.

        Returns:
          `lm_logits` [batch, length - 1, vocab], float32, of the token after each
          position but the last. With `masked_lm_positions` they are [batch,
          predictions, vocab], of the token after each of these. In training they have
          the dtype and columns of `vocabulary_logits`.
        """
        encoded = self.bert(input_ids, input_mask, segment_ids, key, packed)
        hidden = encoded.sequence[:, :-1]
        if masked_lm_positions is not None:
            hidden = jnp.take_along_axis(
                encoded.sequence, masked_lm_positions[:, :, None], axis=1
            )
        matrix = self.bert.embeddings.word_embeddings.table
        logits = vocabulary_logits(hidden, matrix, None, training=key is not None)
        return {"lm_logits": logits}
