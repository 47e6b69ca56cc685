"""ALBERT (Lan et al. 2020): one layer, applied several times, on narrow embeddings.

See docs/encoders.md.
"""

from bert_jax.families.albert.fields import FIELDS
from bert_jax.family import Family

FAMILY = Family(
    name="albert",
    title="an ALBERT",
    model_type="albert",
    with_heads="bert_jax.families.albert.model:AlbertWithHeads",
    has_nsp_head=False,
    fixed=(
        ("scan_layers", False, "has the same parameters in every layer"),
        ("causal", False, "has attention in both directions"),
    ),
    layout="bert_jax.families.albert.layout:LAYOUT",
    fields=FIELDS,
    vocabulary="bert_jax.tokenization.tokenizer_json:UNIGRAM",
)
