"""DistilBERT (Sanh et al. 2019): BERT's layers without segments and pooler.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.family import Family, require_values


def _check(config: Any) -> None:
    require_values(
        config,
        FAMILY.title,
        ("type_vocab_size", 1, "has no segments"),
        ("layer_norm_eps", 1e-12, "has this epsilon"),
        ("causal", False, "has attention in both directions"),
        group="model.",
    )


FAMILY = Family(
    name="distilbert",
    title="a DistilBERT",
    model_type="distilbert",
    with_heads="bert_jax.families.distilbert.model:DistilBertWithHeads",
    for_pretraining="bert_jax.families.distilbert.model:DistilBertForPreTraining",
    has_nsp_head=False,
    has_segments=False,
    check=_check,
    layout="bert_jax.families.distilbert.layout:LAYOUT",
)
