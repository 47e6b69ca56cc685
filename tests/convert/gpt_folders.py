"""Folders of openai-gpt: their tensors drawn at random, and their config."""

import numpy as np

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
