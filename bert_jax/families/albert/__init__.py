"""ALBERT (Lan et al. 2020): one layer, applied several times, on narrow embeddings.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.families.albert.fields import FIELDS
from bert_jax.family import Family, require_values


def _check(config: Any) -> None:
    require_values(
        config,
        FAMILY.title,
        ("scan_layers", False, "has the same parameters in every layer"),
        ("causal", False, "has attention in both directions"),
        group="model.",
    )


FAMILY = Family(
    name="albert",
    title="an ALBERT",
    model_type="albert",
    with_heads="bert_jax.families.albert.model:AlbertWithHeads",
    for_pretraining="bert_jax.families.albert.model:AlbertForPreTraining",
    has_nsp_head=False,
    check=_check,
    layout="bert_jax.families.albert.layout:LAYOUT",
    fields=FIELDS,
    vocabulary="bert_jax.tokenization.tokenizer_json:UNIGRAM",
)
