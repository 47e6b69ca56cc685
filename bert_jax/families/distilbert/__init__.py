"""DistilBERT (Sanh et al. 2019): BERT's layers without segments and pooler.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.family import Family, LazyImport, require_values


class DistilBert(Family):
    """The differences between DistilBERT and BERT."""

    name, title = "distilbert", "a DistilBERT"
    for_pretraining = LazyImport(
        "bert_jax.families.distilbert.model:DistilBertForPreTraining"
    )
    with_heads = LazyImport("bert_jax.families.distilbert.model:DistilBertWithHeads")
    layout = LazyImport("bert_jax.families.distilbert.layout:LAYOUT")
    model_type = "distilbert"
    has_nsp_head = has_segments = False

    def check(self, config: Any) -> None:
        require_values(
            config,
            self.title,
            ("type_vocab_size", 1, "has no segments"),
            ("layer_norm_eps", 1e-12, "has this epsilon"),
            ("causal", False, "has attention in both directions"),
            group="model.",
        )


FAMILY = DistilBert()
