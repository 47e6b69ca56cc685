"""DeBERTa-v3 (He et al. 2021): attention that separates content and position.

See docs/families.md.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.families.electra import WithGenerator
from bert_jax.family import LazyImport, require_values
from bert_jax.models.config import KERNELS


class DebertaV3(WithGenerator):
    """The differences between DeBERTa-v3 and BERT."""

    name, title = "deberta_v3", "a DeBERTa-v3"
    for_pretraining = LazyImport(
        "bert_jax.families.deberta_v3.model:DebertaForPreTraining"
    )
    with_heads = LazyImport("bert_jax.families.deberta_v3.model:DebertaWithHeads")
    replaced_tokens = LazyImport(
        "bert_jax.families.deberta_v3.replaced:DebertaReplacedTokens"
    )
    vocabulary = LazyImport("bert_jax.tokenization.tokenizer_json:UNIGRAM")
    layout = LazyImport("bert_jax.families.deberta_v3.layout:LAYOUT")
    model_type = "deberta-v2"
    has_nsp_head = has_segments = False
    model: Mapping[str, Any] = {"layer": "deberta_v3"}
    fields = LazyImport("bert_jax.families.deberta_v3.fields:FIELDS")
    registry_entries: Mapping[str, Mapping[str, str]] = {
        **WithGenerator.registry_entries,
        "model.layer": {"deberta_v3": "bert_jax.families.deberta_v3.model:Layer"},
    }

    def check(self, config: Any) -> None:
        require_values(
            config,
            self.title,
            ("layer", self.name, "has layers of its own"),
            ("positions", "learnt", "has positions of its own"),
            ("position_initializer", "normal", "has no embeddings of positions"),
            ("type_vocab_size", 1, "has no segments"),
            ("causal", False, "has attention in both directions"),
            group="model.",
        )
        if config.attention in KERNELS:
            raise UserError(
                f"config.model.attention={config.attention}: computes no scores of "
                "relative positions, which a DeBERTa-v3 has; choose einsum"
            )


FAMILY = DebertaV3()
