"""The README.md of an exported model, as the Hugging Face Hub shows it."""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.convert.layout import Weights
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import hub

# The Hub's names of what a model does, by the end of its architecture's name.
_PIPELINES = {
    "ForPreTraining": "fill-mask",
    "ForMaskedLM": "fill-mask",
    "LMHeadModel": "text-generation",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "DoubleHeadsModel": "multiple-choice",
    "Model": "feature-extraction",
}


def text(name: str, weights: Weights, provenance: Mapping[str, Any]) -> str:
    """Returns the card: the model, how to open it, its scores, how it was trained.

    Args:
      name: of the model: OWNER/NAME, or its folder's.
      provenance: of config.json: `step`, `config`, `scores` and `max_seq_length` of
        the run, if it is one's own.
    """
    size, what = weights.config, weights.architecture
    count = sum(np.size(leaf) for leaf in jax.tree.leaves(weights.params))
    config = provenance.get("config") or {}
    quoted = json.dumps(name)
    parts = [
        _header(weights, config),
        f"# {name}",
        f"A {what}: {size.num_hidden_layers} layers, {size.hidden_size} hidden, "
        f"{size.num_attention_heads} heads, {count:,} parameters, "
        f"{size.vocab_size:,} pieces, {lengths(size, provenance)}.",
        f"```python\nfrom transformers import AutoTokenizer, {what}\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({quoted})\n"
        f"model = {what}.from_pretrained({quoted})\n```",
    ]
    for split, scores in provenance.get("scores", {}).items():
        rows = [f"| {name} | {value:.4g} |" for name, value in scores.items()]
        table = "\n".join(["| score | value |", "| --- | --- |", *rows])
        parts.append(f"Scores on {split}:\n\n{table}")
    if config:
        parts.append(
            f"Trained with bert_jax (JAX and Flax): {config['task'].get('name')}, "
            f"{provenance.get('step', 0):,} steps. `config.json` has the whole config, "
            "under `bert_jax`."
        )
    return "\n\n".join(parts) + "\n"


def length(config: BertConfig, provenance: Mapping[str, Any]) -> int:
    """Returns the most tokens of a text: those of the run that trained the model, and
    all that it has positions for where no run says."""
    positions = config.max_position_embeddings
    return min(provenance.get("max_seq_length", positions), positions)


def lengths(config: BertConfig, provenance: Mapping[str, Any]) -> str:
    """Returns `length` in words, beside the positions if they are more."""
    positions, most = config.max_position_embeddings, length(config, provenance)
    if most == positions:
        return f"up to {most} tokens"
    return f"up to {most} tokens, as it was trained, of {positions} positions"


def _header(weights: Weights, config: Mapping[str, Any]) -> str:
    """Returns the fields that the Hub reads."""
    from huggingface_hub import ModelCardData

    name, source = weights.architecture, str(config.get("init_from", ""))
    ends = (kind for end, kind in _PIPELINES.items() if name.endswith(end))
    base = source.removeprefix(hub.PREFIX).partition("@")[0]
    data = ModelCardData(
        library_name="transformers",
        tags=[FAMILIES[weights.config.architecture].model_type, "bert_jax"],
        pipeline_tag=next(ends, None),
        base_model=base if source.startswith(hub.PREFIX) else None,
    )
    return f"---\n{data.to_yaml()}\n---"
