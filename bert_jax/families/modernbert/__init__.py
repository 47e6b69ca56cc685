"""ModernBERT (Warner et al. 2024): windows, rotations and no biases.

See docs/encoders.md.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.family import Family, LazyImport, require_values

_OPTIMIZER = "bert_jax.families.modernbert.optimizer"


class ModernBert(Family):
    """The differences between ModernBERT and BERT."""

    name, title = "modernbert", "a ModernBERT"
    trunk = LazyImport("bert_jax.families.modernbert.model:ModernBert")
    for_pretraining = LazyImport(
        "bert_jax.families.modernbert.model:ModernBertForPreTraining"
    )
    with_heads = LazyImport("bert_jax.families.modernbert.model:ModernBertWithHeads")
    vocabulary = LazyImport("bert_jax.tokenization.byte_level:BRACKETED")
    layout = LazyImport("bert_jax.families.modernbert.layout:LAYOUT")
    model_type = "modernbert"
    biases = False
    has_nsp_head = has_segments = has_positions = False
    fields = LazyImport("bert_jax.families.modernbert.fields:FIELDS")
    registry_entries: Mapping[str, Mapping[str, str]] = {
        "optimizer.name": {"stable_adamw": f"{_OPTIMIZER}:stable_adamw"},
        "optimizer.schedule": {
            "warmup_stable_decay": f"{_OPTIMIZER}:warmup_stable_decay"
        },
        "model.layer": {"modernbert": "bert_jax.families.modernbert.model:Layer"},
        "model.positions": {
            "modernbert": "bert_jax.families.modernbert.model:GLOBAL",
            "modernbert_local": "bert_jax.families.modernbert.model:LOCAL",
        },
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

    def init_stddev(self, config: Any, names: tuple[str, ...]) -> float:
        """Returns the deviation of `_init_weights` in `transformers`: smaller into the
        residual stream."""
        if names[-1] == "labels":
            return float(config.hidden_size**-0.5)
        out = names[0] in ("heads", "mlp") or names[-1] == "pooled"
        depth = 2 * config.num_hidden_layers
        return float(config.initializer_range * (depth**-0.5 if out else 1.0))

    def layer_flops(self, config: Any, length: int, index: int) -> int:
        hidden, inner = config.hidden_size, config.intermediate_size
        seen = length
        if index % config.field("global_attn_every_n_layers"):
            seen = min(length, config.field("local_attention") + 1)
        projections = 2 * length * (4 * hidden * hidden + 3 * hidden * inner)
        return int(projections + 2 * 2 * length * seen * hidden)

    def fill_defaults(self, config: Any) -> None:
        super().fill_defaults(config)
        config.model.layer = config.model.positions = self.name


FAMILY = ModernBert()
