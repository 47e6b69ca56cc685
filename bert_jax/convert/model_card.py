"""The README.md of an exported model, as the Hugging Face Hub shows it."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.convert.layout import Weights
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import hub

# Fields of a run that a reader asks for first.
_FIELDS = (
    *("task.name", "task.data_dir", "task.train_file", "corpus.sources", "init_from"),
    *("train.batch_size", "train.num_steps", "optimizer.name", "seed"),
    *("optimizer.learning_rate", "model.dtype"),
)


_TICK = "\\u0060"  # in JSON; the character itself would end the code


def text(name: str, weights: Weights, provenance: Mapping[str, Any]) -> str:
    """The card: what the model is, how to open it, its scores, how it was trained.

    Args:
      name: of the model: OWNER/NAME, or its folder's.
      provenance: of config.json: `step`, `config`, `scores` and `max_seq_length` of
        the run, if it is one's own.
    """
    size, params = weights.config, flatten_dict(weights.params).values()
    count = sum(math.prod(np.shape(value)) for value in params)
    parts = [
        _header(weights, provenance),
        f"# {_plain(name)}",
        f"A {weights.architecture}: {size.num_hidden_layers} layers, "
        f"{size.hidden_size} hidden, {size.num_attention_heads} heads, {count:,} "
        f"parameters, {size.vocab_size:,} pieces, {lengths(size, provenance)}.",
        _code(name, weights.architecture),
    ]
    for split, scores in provenance.get("scores", {}).items():
        rows = [(_plain(key), f"{value:.4g}") for key, value in scores.items()]
        parts.append(
            f"Scores on {_plain(split)}:\n\n{_markdown(rows, ('score', 'value'))}"
        )
    if config := provenance.get("config"):
        fields = {
            f"{group}.{key}" if isinstance(values, dict) else group: value
            for group, values in config.items()
            for key, value in (
                values.items() if isinstance(values, dict) else [("", values)]
            )
        }
        corpus = fields.get("task.name") == "pretraining"
        rows = [
            (key, f"`{json.dumps(fields[key]).replace('`', _TICK)}`")
            for key in _FIELDS
            if fields.get(key) or (key == "seed" and key in fields)
            if corpus or key != "corpus.sources"
        ]
        parts.append(
            f"Trained with bert_jax (JAX and Flax), {provenance.get('step', 0):,} "
            "steps. `config.json` has the whole config, under `bert_jax`.\n\n"
            + _markdown(rows, ("field", "value"))
        )
    return "\n\n".join(parts) + "\n"


def length(config: BertConfig, provenance: Mapping[str, Any]) -> int:
    """The most tokens of a text: those of the run that trained the model, and all that
    it has positions for where no run says."""
    positions = config.max_position_embeddings
    return min(provenance.get("max_seq_length", positions), positions)


def lengths(config: BertConfig, provenance: Mapping[str, Any]) -> str:
    """`length` in words, beside the positions if they are more."""
    positions, most = config.max_position_embeddings, length(config, provenance)
    if most == positions:
        return f"up to {most} tokens"
    return f"up to {most} tokens, as it was trained, of {positions} positions"


def _header(weights: Weights, provenance: Mapping[str, Any]) -> str:
    """The fields that the Hub reads, in YAML (of which JSON's strings are a part)."""
    family = FAMILIES[weights.config.architecture]
    lines = ["library_name: transformers", f"tags: [{family.model_type}, bert_jax]"]
    if pipeline := family.huggingface.PIPELINES.get(weights.architecture):
        lines.append(f"pipeline_tag: {pipeline}")
    source = provenance.get("config", {}).get("init_from", "")
    if isinstance(source, str) and source.startswith(hub.PREFIX):
        base = source.removeprefix(hub.PREFIX).partition("@")[0]
        lines.append(f"base_model: {json.dumps(base)}")
    return "\n".join(["---", *lines, "---"])


def _code(name: str, architecture: str) -> str:
    return (
        "```python\n"
        f"from transformers import AutoTokenizer, {architecture}\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({json.dumps(name)})\n"
        f"model = {architecture}.from_pretrained({json.dumps(name)})\n"
        "```"
    )


def _plain(name: str) -> str:
    """A name, which may be another's, without a character that means something."""
    return re.sub(r"[^\w ./-]", lambda match: f"&#{ord(match[0])};", name)


def _markdown(rows: list[tuple[str, str]], header: tuple[str, str]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (header, ("---", "---"), *escaped)]
    return "\n".join(lines)
