"""CamemBERT (Martin et al. 2020): RoBERTa with a French SentencePiece vocabulary.

See docs/encoders.md.
"""

from bert_jax.families import roberta

FAMILY = roberta.FAMILY.replace(
    name="camembert",
    title="a CamemBERT",
    model_type="camembert",
    layout="bert_jax.families.roberta.layout:CAMEMBERT",
    vocabulary="bert_jax.tokenization.tokenizer_json:UNIGRAM",
)
