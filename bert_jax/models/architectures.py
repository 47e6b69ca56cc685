"""BERT with any set of heads, for fine-tuning and for loaded models."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import flax.linen as nn
import jax
from jaxtyping import Array, Float, Int

from bert_jax.models.config import BertConfig
from bert_jax.models.crf import Crf
from bert_jax.models.encoder import Bert, Encoded, Packed
from bert_jax.models.heads import Classifier, HiddenLayer, MaskedLmHead
from bert_jax.models.layers import Dense, dropout
from bert_jax.models.lstm import BiLstm
from bert_jax.types import DropoutKey

# Each head's input, whether dropout comes before it, and its number of outputs (None
# means one per label). Section 4 and appendix B, run_classifier.py, run_squad.py.
LINEAR_HEADS: dict[str, tuple[str, bool, int | None]] = {
    "next_sentence": ("pooled", False, 2),
    "sequence_classification": ("pooled", True, None),
    "token_classification": ("sequence", True, None),
    "question_answering": ("sequence", False, 2),
    "multiple_choice": ("pooled", True, 1),
}
# The learning rate of a tagger's CRF, a head next to the linear one, in multiples of
# the others'.
CRF_SCALE = 100.0
# A config file's custom heads by name (docs/extending.md): MODULE(config, labels)
# takes the encoder's outputs, the input mask and the dropout key, and returns
# outputs by name, in float32.
HEADS: dict[str, Callable[..., nn.Module]] = {}


class BertWithHeads(nn.Module):
    """The trunk under `bert`, and each head under its own name. Without
    heads, it is the trunk alone.

    With ("masked_lm", "next_sentence") it has the parameters of BertForPreTraining.

    Attributes:
      config: The model's sizes.
      heads: masked_lm, crf, and names of LINEAR_HEADS or HEADS.
      labels: Number of outputs of sequence or token classification.
      bilstm: Whether heads read a BiLSTM's output (section 5.1) instead of BERT's.
      trunk: Function of the config that returns the model without heads. A family
        overrides it.
      hidden_layers: Heads with a hidden layer instead of the pooler, by name. A family
        overrides them.
    """

    config: BertConfig
    heads: tuple[str, ...] = ()
    labels: int = 2
    bilstm: bool = False
    trunk: ClassVar[Callable[..., nn.Module]] = Bert
    hidden_layers: ClassVar[Mapping[str, HiddenLayer]] = {}

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "*batch length"],
        input_mask: Int[Array, "*batch length"],
        segment_ids: Int[Array, "*batch length"],
        key: DropoutKey = None,
        packed: Packed | None = None,
    ) -> dict[str, Array | list[Array]]:
        """Encodes a batch and computes the heads.

        Args:
          input_ids: [batch, length], or [batch, choices, length] with
            `multiple_choice`, each choice a row.
          input_mask: 1 for a token, 0 for padding.
          segment_ids: 0 for the first sentence, 1 for the second.
          key: Dropout key. None means evaluation.
          packed: Ids and positions of rows with several sequences. Outputs computed
            from the pooled [CLS] are then [batch, sequences, ...]. Not with `bilstm`.

        Returns:
          `hidden_states`, a list of the embeddings' output and each layer's, [batch,
          length, hidden], `pooled` [batch, hidden], and the heads' outputs in float32:
          `masked_lm_logits` [batch, length, vocab] (`lm_logits` for a causal model, of
          the next token at each position), `next_sentence_logits` [batch, 2],
          `logits` ([batch, labels], [batch, length, labels] or [batch, choices]),
          `start_logits` and `end_logits` [batch, length], `between`, `first` and `last`
          (`crf.Transitions`).
        """
        length = input_ids.shape[-1]
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        bert = self.trunk(self.config, name="bert")
        ids, mask, segments = (
            x.reshape(-1, length) for x in (input_ids, input_mask, segment_ids)
        )
        encoded = bert(ids, mask, segments, keys[0], packed)
        outputs: dict[str, Array | list[Array]] = {
            "hidden_states": encoded.hidden_states,
            "pooled": encoded.pooled,
        }
        if self.bilstm:
            size = self.config.hidden_size // 2
            sequence = BiLstm(size, name="bilstm")(encoded.sequence, mask)
            first = bert.cls_vector(sequence, mask)
            encoded = encoded._replace(
                sequence=sequence, first=first, pooled=bert.pool(first)
            )
        for head in self.heads:
            if head == "masked_lm":
                name = "lm_logits" if self.config.causal else "masked_lm_logits"
                outputs[name] = self._masked_lm(bert, encoded)
                continue
            if head == "crf":
                outputs |= Crf(self.labels, CRF_SCALE, name="crf")()._asdict()
                continue
            if head in HEADS:
                module = HEADS[head](self.config, self.labels, name=head)
                outputs |= module(encoded, mask, keys[1])
                continue
            rows = input_ids.shape[:-1]
            logits = self._linear(bert, head, encoded, keys[1], rows)
            outputs |= _name_logits(head, logits, input_ids.shape[:-1])
        return outputs

    @classmethod
    def uses_pooler(cls, head: str) -> bool:
        """Returns whether a head reads the pooled [CLS]. A custom head may."""
        reads_pooled = head in LINEAR_HEADS and LINEAR_HEADS[head][0] == "pooled"
        return head in HEADS or (reads_pooled and head not in cls.hidden_layers)

    def _masked_lm(self, bert: nn.Module, encoded: Encoded) -> Float[Array, "..."]:
        matrix = bert.embeddings.word_embeddings.table
        return MaskedLmHead(self.config, name="masked_lm")(encoded.sequence, matrix)

    def _linear(
        self,
        bert: nn.Module,
        head: str,
        encoded: Encoded,
        key: DropoutKey,
        rows: tuple[int, ...],
    ) -> Float[Array, "..."]:
        source, drops, outputs = LINEAR_HEADS[head]
        features, rate = getattr(encoded, source), self.config.hidden_dropout_prob
        if head in self.hidden_layers:
            classifier = Classifier(
                self.config,
                (outputs or self.labels,),
                ("embed", "labels"),
                logits=True,
                hidden=self.hidden_layers[head],
                rate=rate,
                name=head,
            )
            return classifier(encoded.first, key)
        if drops:  # at rate 0.1 in run_classifier.py too
            features = dropout(features, rate, key)
        return self._dense(head, features)

    def _dense(self, head: str, features: Float[Array, "..."]) -> Float[Array, "..."]:
        outputs = (LINEAR_HEADS[head][2] or self.labels,)
        dense = Dense(self.config, outputs, ("embed", "labels"), logits=True, name=head)
        return dense(features)


def _name_logits(
    head: str, logits: Float[Array, "..."], rows: tuple[int, ...]
) -> dict[str, Array]:
    """Names a linear head's logits. `rows` is the shape of the batch."""
    if head == "next_sentence":
        return {"next_sentence_logits": logits}
    if head == "question_answering":
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
    return {"logits": logits.reshape(rows) if head == "multiple_choice" else logits}
