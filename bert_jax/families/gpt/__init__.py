"""OpenAI's GPT (Radford et al. 2018), in BERT's encoder layers.

See docs/gpt.md.
"""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.families.gpt.fields import FIELDS
from bert_jax.family import Family


def _check(config: Any) -> None:
    if not config.causal:
        raise UserError(
            "config.model.architecture=gpt: a GPT reads left to right, so "
            "config.model.causal must be True; start from configs/gpt.py, or from "
            "a config of configs/finetune/ with :model=gpt"
        )


FAMILY = Family(
    name="gpt",
    title="a GPT",
    model_type="openai-gpt",
    with_heads="bert_jax.families.gpt.model:GptWithHeads",
    for_pretraining="bert_jax.families.gpt.model:GptForPreTraining",
    has_nsp_head=False,
    has_segments=False,
    model={"initializer": "bert_jax.families.gpt.model:initializer"},
    check=_check,
    layout="bert_jax.families.gpt.layout:LAYOUT",
    fields=FIELDS,
    registry_entries={
        "optimizer.name": {
            "openai_adam": "bert_jax.families.gpt.optimizer:openai_adam"
        },
        "optimizer.schedule": {
            "openai_linear": "bert_jax.families.gpt.optimizer:warmup_linear",
            "openai_cosine": "bert_jax.families.gpt.optimizer:warmup_cosine",
        },
    },
    vocabulary="bert_jax.families.gpt.vocabulary:BYTE_PAIRS",
    assemble="bert_jax.families.gpt.pretraining:fill",
    task="bert_jax.families.gpt.finetuning:choose_task",
)
