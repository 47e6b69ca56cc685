"""ELECTRA (Clark et al. 2020): BERT's layers, trained to find replaced tokens.

The embeddings may be narrower than the layers. See docs/encoders.md.
"""

from typing import Any

from bert_jax.families.electra.fields import FIELDS
from bert_jax.family import FAMILIES, Family, require_values

OBJECTIVE = "replaced_tokens"
ENTRIES = {
    "task.objective": {OBJECTIVE: "bert_jax.families.electra.replaced:OBJECTIVE"}
}


def whole_task(name: str, task: Any) -> Any:
    """Returns the task, of which pre-training with a generator has no LoRA."""

    def create_checked(config: Any, tokenizer: Any = None) -> Any:
        if config.task.objective == OBJECTIVE:
            why = "is trained whole, with its generator"
            title = FAMILIES[config.model.architecture].title
            require_values(config, title, ("model.lora_rank", 0, why))
        return task(config, tokenizer)

    return create_checked if name == "pretraining" else task


FAMILY = Family(
    name="electra",
    title="an ELECTRA",
    model_type="electra",
    with_heads="bert_jax.families.electra.model:ElectraWithHeads",
    has_nsp_head=False,
    fixed=(
        ("hidden_act", "gelu", "has this activation, also in its heads"),
        ("causal", False, "has attention in both directions"),
    ),
    layout="bert_jax.families.electra.layout:LAYOUT",
    fields=FIELDS,
    registry_entries=ENTRIES,
    task=whole_task,
    replaced_tokens="bert_jax.families.electra.replaced:ElectraReplacedTokens",
)
