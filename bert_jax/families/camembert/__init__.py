"""CamemBERT (Martin et al. 2020): RoBERTa with a French SentencePiece vocabulary.

See docs/encoders.md.
"""

from bert_jax.families.roberta import Roberta
from bert_jax.family import LazyImport


class Camembert(Roberta):
    """The differences between CamemBERT and RoBERTa."""

    name, title = "camembert", "a CamemBERT"
    vocabulary = LazyImport("bert_jax.tokenization.tokenizer_json:UNIGRAM")
    layout = LazyImport("bert_jax.families.roberta.layout:CAMEMBERT")
    model_type = "camembert"


FAMILY = Camembert()
