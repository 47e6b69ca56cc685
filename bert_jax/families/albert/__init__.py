"""ALBERT (Lan et al. 2020): one layer, applied several times, on narrow embeddings.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.family import Family, LazyImport, require_values


class Albert(Family):
    """The differences between ALBERT and BERT."""

    name, title = "albert", "an ALBERT"
    for_pretraining = LazyImport("bert_jax.families.albert.model:AlbertForPreTraining")
    with_heads = LazyImport("bert_jax.families.albert.model:AlbertWithHeads")
    has_nsp_head = False
    vocabulary = LazyImport("bert_jax.tokenization.tokenizer_json:UNIGRAM")
    layout = LazyImport("bert_jax.families.albert.layout:LAYOUT")
    model_type = "albert"
    fields = LazyImport("bert_jax.families.albert.fields:FIELDS")

    def check(self, config: Any) -> None:
        require_values(
            config,
            self.title,
            ("scan_layers", False, "has the same parameters in every layer"),
            ("causal", False, "has attention in both directions"),
            group="model.",
        )


FAMILY = Albert()
