"""XLM-R (Conneau et al. 2020): RoBERTa with a SentencePiece vocabulary.

See docs/encoders.md.
"""

from bert_jax.families import roberta

FAMILY = roberta.FAMILY.replace(
    name="xlm_roberta",
    title="an XLM-R",
    model_type="xlm-roberta",
    layout="bert_jax.families.roberta.layout:XLM_ROBERTA",
    vocabulary="bert_jax.tokenization.tokenizer_json:UNIGRAM",
)
