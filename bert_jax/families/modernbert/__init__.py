"""ModernBERT (Warner et al. 2024): windows, rotations and no biases.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.families.modernbert.fields import FIELDS
from bert_jax.family import Family

_MODEL = "bert_jax.families.modernbert.model"
_OPTIMIZER = "bert_jax.families.modernbert.optimizer"


def _check(config: Any) -> None:
    if config.head_dim % 2:
        raise UserError(
            f"config.model.hidden_size / num_attention_heads={config.head_dim}: "
            "rotary positions turn numbers in pairs; it must be even"
        )


FAMILY = Family(
    name="modernbert",
    title="a ModernBERT",
    model_type="modernbert",
    with_heads=f"{_MODEL}:ModernBertWithHeads",
    for_pretraining=f"{_MODEL}:ModernBertForPreTraining",
    has_nsp_head=False,
    has_segments=False,
    model={
        "bias": False,
        "initializer": f"{_MODEL}:initializer",
        "layer": "modernbert",
        "positions": "modernbert",
    },
    fixed=(
        ("layer", "modernbert", "has layers of its own"),
        ("positions", "modernbert", "has rotary positions"),
        ("position_initializer", "normal", "has no embeddings of positions"),
        ("type_vocab_size", 1, "has no segments"),
        ("causal", False, "has attention in both directions"),
        ("scan_layers", False, "has layers that differ"),
    ),
    check=_check,
    layout="bert_jax.families.modernbert.layout:LAYOUT",
    fields=FIELDS,
    registry_entries={
        "optimizer.name": {"stable_adamw": f"{_OPTIMIZER}:stable_adamw"},
        "optimizer.schedule": {
            "warmup_stable_decay": f"{_OPTIMIZER}:warmup_stable_decay"
        },
        "model.layer": {"modernbert": f"{_MODEL}:ModernBertLayer"},
        "model.positions": {"modernbert": f"{_MODEL}:GLOBAL"},
    },
    vocabulary="bert_jax.tokenization.byte_level:BRACKETED",
)
