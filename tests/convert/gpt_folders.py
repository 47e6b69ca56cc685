"""Folders of openai-gpt: their tensors drawn at random, and their config."""

import json

import numpy as np
from safetensors.numpy import save_file

from bert_jax import tokenization
from bert_jax.convert import layout, weights
from families.gpt.vocabulary import BYTE_PAIRS
from tests.close import assert_close

TEXT = "the quick brown fox jumps over the lazy dog while seven cats watch it go"
CONFIG = {
    "architectures": ["OpenAIGPTLMHeadModel"],
    "model_type": "openai-gpt",
    "vocab_size": 97,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 24,
    "afn": "gelu",
    "layer_norm_epsilon": 1e-5,
}


def drawn(labels=0):
    """Tensors as released: names without a prefix, and each layer's mask."""
    rng = np.random.default_rng(0)
    shapes = {"tokens_embed.weight": (97, 32), "positions_embed.weight": (24, 32)}
    for layer in range(2):
        for name, shape in (
            *(("attn.c_attn", (32, 96)), ("attn.c_proj", (32, 32))),
            *(("mlp.c_fc", (32, 128)), ("mlp.c_proj", (128, 32))),
        ):
            shapes[f"h.{layer}.{name}.weight"] = shape
            shapes[f"h.{layer}.{name}.bias"] = shape[1:]
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{layer}.{norm}.{x}": (32,) for x in ("weight", "bias")}
        shapes[f"h.{layer}.attn.bias"] = (1, 1, 24, 24)
    if labels:
        shapes["score.weight"] = (labels, 32)
    return {
        name: rng.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def written(path, fields=None, change=None, vocabulary_too=True):
    """Writes a folder, its tensors as `change` returns or leaves them."""
    path.mkdir()
    tensors = drawn()
    tensors = (change(tensors) or tensors) if change else tensors
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps({**CONFIG, **(fields or {})}))
    if vocabulary_too:
        learnt = BYTE_PAIRS.train([TEXT] * 2, 100, lowercase=True)
        tokenization.save(learnt, path)
        (path / "tokenizer.json").unlink()
    return path


def inputs(rows=3, length=11):
    ids = np.random.default_rng(1).integers(0, 97, (rows, length))
    return ids, np.ones_like(ids), 0 * ids


def finetuned(head, labels, source):
    """As a run leaves it: the trunk of `source` and a head, its bias too."""
    found = weights.read(source)
    rng = np.random.default_rng(2)
    outputs = max(1, len(labels))
    own = {
        "kernel": rng.normal(size=(32, outputs)).astype(np.float32),
        "bias": rng.normal(size=outputs).astype(np.float32),
    }
    name = {
        "sequence_classification": "OpenAIGPTForSequenceClassification",
        "multiple_choice": "OpenAIGPTDoubleHeadsModel",
    }[head]
    return layout.Weights(found.config, {**found.params, head: own}, name, labels)


def tied(tensors):
    prefixed = {f"transformer.{name}": value for name, value in tensors.items()}
    head = tensors["tokens_embed.weight"].copy()
    return {**prefixed, "lm_head.weight": head}


def same_double_heads(found, expected):
    """Ours and torch's outputs of three examples of two endings are the same."""
    choices, pieces = (
        x.detach().numpy() for x in (expected.mc_logits, expected.logits)
    )
    assert_close(found["logits"], choices)
    ours = found["lm_logits"].reshape(3, 2, 11, -1)
    assert_close(ours, pieces)
