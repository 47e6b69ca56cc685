"""DistilBERT (Sanh et al. 2019): BERT's layers without segments and pooler.

See docs/encoders.md.
"""

from bert_jax.family import Family

FAMILY = Family(
    name="distilbert",
    title="a DistilBERT",
    model_type="distilbert",
    with_heads="bert_jax.families.distilbert.model:DistilBertWithHeads",
    has_nsp_head=False,
    has_segments=False,
    fixed=(
        ("type_vocab_size", 1, "has no segments"),
        ("layer_norm_eps", 1e-12, "has this epsilon"),
        ("causal", False, "has attention in both directions"),
    ),
    layout="bert_jax.families.distilbert.layout:LAYOUT",
)
