"""ELECTRA (Clark et al. 2020): BERT's layers, trained to find replaced tokens.

The embeddings may be narrower than the layers. See docs/encoders.md.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.family import Family, LazyImport, require_values

OBJECTIVE = "replaced_tokens"


class WithGenerator(Family):
    """A family that may be trained together with a generator.

    `replaced_tokens` is the model of both (`bert_jax.families.electra.replaced`).
    """

    replaced_tokens: Any
    others: tuple[str, ...] = ("generator",)
    registry_entries: Mapping[str, Mapping[str, str]] = {
        "task.objective": {OBJECTIVE: "bert_jax.families.electra.replaced:OBJECTIVE"}
    }

    def task(self, name: str, task: Any) -> Any:
        def checked(config: Any, tokenizer: Any = None) -> Any:
            if config.task.objective == OBJECTIVE:
                why = "is trained whole, with its generator"
                require_values(config, self.title, ("model.lora_rank", 0, why))
            return task(config, tokenizer)

        return checked if name == "pretraining" else task

    def models(self, config: Any, params: Any) -> dict[str, tuple[Any, Any]]:
        from bert_jax.families.electra import replaced  # not before a model is needed

        return replaced.split_models(config, params)

    def joined(self, params: Any, others: Mapping[str, Any]) -> Any:
        from bert_jax.families.electra import replaced

        return replaced.join_models(self.name, params, others)


class Electra(WithGenerator):
    """The differences between ELECTRA and BERT."""

    name, title = "electra", "an ELECTRA"
    for_pretraining = LazyImport(
        "bert_jax.families.electra.model:ElectraForPreTraining"
    )
    has_nsp_head = False
    with_heads = LazyImport("bert_jax.families.electra.model:ElectraWithHeads")
    replaced_tokens = LazyImport(
        "bert_jax.families.electra.replaced:ElectraReplacedTokens"
    )
    layout = LazyImport("bert_jax.families.electra.layout:LAYOUT")
    model_type = "electra"
    fields = LazyImport("bert_jax.families.electra.fields:FIELDS")

    def check(self, config: Any) -> None:
        require_values(
            config,
            self.title,
            ("hidden_act", "gelu", "has this activation, also in its heads"),
            ("causal", False, "has attention in both directions"),
            group="model.",
        )


FAMILY = Electra()
