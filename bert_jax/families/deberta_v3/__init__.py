"""DeBERTa-v3 (He et al. 2021): attention that separates content and position.

See docs/families.md.
"""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.families import electra
from bert_jax.families.deberta_v3.fields import FIELDS
from bert_jax.family import Family


def _check(config: Any) -> None:
    if config.attention == "fused":
        raise UserError(
            "config.model.attention=fused: computes no scores of "
            "relative positions, which a DeBERTa-v3 has; choose einsum"
        )


FAMILY = Family(
    name="deberta_v3",
    title="a DeBERTa-v3",
    model_type="deberta-v2",
    with_heads="bert_jax.families.deberta_v3.model:DebertaWithHeads",
    has_nsp_head=False,
    has_segments=False,
    model={"layer": "deberta_v3"},
    fixed=(
        ("layer", "deberta_v3", "has layers of its own"),
        ("positions", "learnt", "has positions of its own"),
        ("position_initializer", "normal", "has no embeddings of positions"),
        ("type_vocab_size", 1, "has no segments"),
        ("causal", False, "has attention in both directions"),
    ),
    check=_check,
    layout="bert_jax.families.deberta_v3.layout:LAYOUT",
    fields=FIELDS,
    registry_entries={
        **electra.ENTRIES,
        "model.layer": {"deberta_v3": "bert_jax.families.deberta_v3.model:Layer"},
    },
    vocabulary="bert_jax.tokenization.tokenizer_json:UNIGRAM",
    task=electra.whole_task,
    replaced_tokens="bert_jax.families.deberta_v3.replaced:DebertaReplacedTokens",
)
