"""ModernBERT (Warner et al. 2024): windows, rotations and no biases.

See docs/encoders.md.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.family import Family, LazyImport, require_values

_MODEL = "bert_jax.families.modernbert.model"
_OPTIMIZER = "bert_jax.families.modernbert.optimizer"


class ModernBert(Family):
    """The differences between ModernBERT and BERT."""

    name, title = "modernbert", "a ModernBERT"
    for_pretraining = LazyImport(f"{_MODEL}:ModernBertForPreTraining")
    with_heads = LazyImport(f"{_MODEL}:ModernBertWithHeads")
    vocabulary = LazyImport("bert_jax.tokenization.byte_level:BRACKETED")
    layout = LazyImport("bert_jax.families.modernbert.layout:LAYOUT")
    model_type = "modernbert"
    has_nsp_head = has_segments = False
    model: Mapping[str, Any] = {
        "bias": False,
        "initializer": f"{_MODEL}:initializer",
        "layer": "modernbert",
        "positions": "modernbert",
    }
    fields = LazyImport("bert_jax.families.modernbert.fields:FIELDS")
    registry_entries: Mapping[str, Mapping[str, str]] = {
        "optimizer.name": {"stable_adamw": f"{_OPTIMIZER}:stable_adamw"},
        "optimizer.schedule": {
            "warmup_stable_decay": f"{_OPTIMIZER}:warmup_stable_decay"
        },
        "model.layer": {"modernbert": f"{_MODEL}:ModernBertLayer"},
        "model.positions": {"modernbert": f"{_MODEL}:GLOBAL"},
    }

    def check(self, config: Any) -> None:
        require_values(
            config,
            self.title,
            ("layer", self.name, "has layers of its own"),
            ("positions", self.name, "has rotary positions"),
            ("position_initializer", "normal", "has no embeddings of positions"),
            ("type_vocab_size", 1, "has no segments"),
            ("causal", False, "has attention in both directions"),
            ("scan_layers", False, "has layers that differ"),
            group="model.",
        )
        if config.head_dim % 2:
            raise UserError(
                f"config.model.hidden_size / num_attention_heads={config.head_dim}: "
                "rotary positions turn numbers in pairs; it must be even"
            )
        if config.attention == "cudnn":
            raise UserError(
                "config.model.attention=cudnn: computes no windows of a ModernBERT; "
                "choose fused"
            )


FAMILY = ModernBert()
