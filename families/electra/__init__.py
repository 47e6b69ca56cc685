"""ELECTRA (Clark et al. 2020): BERT's layers, trained to find replaced tokens.

The embeddings may be narrower than the layers. See docs/encoders.md.
"""

from typing import Any

from bert_jax.family import Family, LazyImport, require_values


class Electra(Family):
    """The differences between ELECTRA and BERT."""

    name, title = "electra", "an ELECTRA"
    trunk = LazyImport("families.electra.model:Electra")
    for_pretraining = LazyImport("families.electra.model:ElectraForPreTraining")
    with_heads = LazyImport("families.electra.model:ElectraWithHeads")
    layout = LazyImport("families.electra.layout:LAYOUT")
    model_type = "electra"
    fields = LazyImport("families.electra.fields:FIELDS")

    def check(self, config: Any) -> None:
        require_values(
            config,
            self.title,
            ("hidden_act", "gelu", "has this activation, also in its heads"),
            ("causal", False, "has attention in both directions"),
            group="model.",
        )

    def fill_defaults(self, config: Any) -> None:
        config.corpus.nsp = False


FAMILY = Electra()
