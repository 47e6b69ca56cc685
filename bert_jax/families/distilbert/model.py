"""DistilBERT (`transformers`, modeling_distilbert.py): embeddings of tokens and
positions, BERT's layers, and classifiers with a hidden layer instead of a pooler."""

from typing import ClassVar

import jax

from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.encoder import Bert, Embeddings
from bert_jax.models.heads import HiddenLayer

_RELU = HiddenLayer(jax.nn.relu, drops_input=False)


class DistilBertEmbeddings(Embeddings):
    """Token + position, LayerNorm, dropout."""

    has_types: ClassVar[bool] = False


class DistilBert(Bert):
    """The part that every task shares: 66,362,880 parameters as released."""

    embeds: ClassVar = DistilBertEmbeddings
    has_pooler: ClassVar[bool] = False


class DistilBertWithHeads(BertWithHeads):
    """DistilBERT with any set of heads."""

    trunk: ClassVar = DistilBert
    hidden_layers: ClassVar = {
        "sequence_classification": _RELU,
        "multiple_choice": _RELU,
    }
