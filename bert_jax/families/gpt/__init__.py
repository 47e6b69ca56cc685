"""OpenAI's GPT (Radford et al. 2018), in BERT's encoder layers.

See docs/gpt.md.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.family import Family, LazyImport


class Gpt(Family):
    """The differences between GPT and BERT."""

    name, title = "gpt", "a GPT"
    for_pretraining = LazyImport("bert_jax.families.gpt.model:GptForPreTraining")
    with_heads = LazyImport("bert_jax.families.gpt.model:GptWithHeads")
    model: Mapping[str, Any] = {
        "initializer": "bert_jax.families.gpt.model:initializer"
    }
    vocabulary = LazyImport("bert_jax.families.gpt.vocabulary:BYTE_PAIRS")
    assemble = LazyImport("bert_jax.families.gpt.pretraining:fill")
    layout = LazyImport("bert_jax.families.gpt.layout:LAYOUT")
    model_type = "openai-gpt"
    has_nsp_head = has_segments = shares_rows = False
    fields = LazyImport("bert_jax.families.gpt.fields:FIELDS")
    registry_entries: Mapping[str, Mapping[str, str]] = {
        "optimizer.name": {
            "openai_adam": "bert_jax.families.gpt.optimizer:openai_adam"
        },
        "optimizer.schedule": {
            "openai_linear": "bert_jax.families.gpt.optimizer:warmup_linear",
            "openai_cosine": "bert_jax.families.gpt.optimizer:warmup_cosine",
        },
    }
    bare_heads = ("masked_lm",)  # the language model's matrix is the embeddings'

    def check(self, config: Any) -> None:
        if not config.causal:
            raise UserError(
                "config.model.architecture=gpt: a GPT reads left to right, so "
                "config.model.causal must be True; start from configs/gpt.py, or from "
                "a config of configs/finetune/ with :model=gpt"
            )

    def task(self, name: str, task: Any) -> Any:
        from bert_jax.families.gpt import finetuning

        return finetuning.of(name, task)

    def export_error(self, task: Any) -> str:
        if not task.get("both_orders", False):
            return ""
        return (
            "config.task.both_orders=True adds the vectors of both orders of a pair; "
            "Hugging Face's GPT has no such part"
        )


FAMILY = Gpt()
