"""XLM-R (Conneau et al. 2020): RoBERTa with a SentencePiece vocabulary.

See docs/encoders.md.
"""

from bert_jax.families.roberta import Roberta
from bert_jax.family import LazyImport


class XlmRoberta(Roberta):
    """The differences between XLM-R and RoBERTa."""

    name, title = "xlm_roberta", "an XLM-R"
    vocabulary = LazyImport("bert_jax.tokenization.tokenizer_json:UNIGRAM")
    layout = LazyImport("bert_jax.families.roberta.layout:XLM_ROBERTA")
    model_type = "xlm-roberta"


FAMILY = XlmRoberta()
