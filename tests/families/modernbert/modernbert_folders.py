"""Folders of modernbert: their tensors drawn at random, and their config."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert_jax.convert import layout as core
from bert_jax.families.modernbert.layout import LAYOUT

ARCHITECTURES = sorted(LAYOUT.architectures)
SIZES = {
    # Windows of 4 to each side, far fewer than the tokens.
    "wide": {
        "vocab_size": 61,
        "hidden_size": 48,
        "intermediate_size": 40,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "max_position_embeddings": 40,
        "local_attention": 8,
    },
    "deep": {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "local_attention": 16,
        "global_attn_every_n_layers": 2,
        "classifier_pooling": "mean",
    },
    # The published Base, except for the number of tokens.
    "base": {"vocab_size": 640},
}


def fields(architecture, size, **more):
    """Returns the fields of config.json. A classifier has three labels."""
    special = {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1}
    labels = {str(i): f"LABEL_{i}" for i in range(3)}
    labelled = set(LAYOUT.architectures[architecture]) & set(core.LABELLED_HEADS)
    return {
        "architectures": [architecture],
        "model_type": "modernbert",
        **special,
        "sep_token_id": 2,
        "eos_token_id": 2,
        **SIZES[size],
        **({"id2label": labels} if labelled else {}),
        **more,
    }


def drawn(given, seed=3, loudness=1.0):
    """Weights far from their initial values, so that a swap or a transposition shows:
    LayerNorm scales from 0.5 to 3, a bias that is not zero. A deep model with all of
    it only shows how rounding grows: `loudness` is of its matrices."""
    random, (architecture,) = np.random.RandomState(seed), given["architectures"]
    shapes = {}
    config = LAYOUT.config(given, Path())
    for part in ("bert", *LAYOUT.architectures[architecture]):
        for parameter in LAYOUT.parameters(part, config, labels=3):
            name = parameter.name
            if architecture == "ModernBertModel":
                name = name.removeprefix(LAYOUT.prefix)
            shapes[name] = parameter.torch_shape
    tensors = {}
    for name in sorted(shapes):
        values = random.standard_normal(shapes[name])
        if "norm" in name:
            values = random.uniform(0.5, 3.0, shapes[name])
        elif values.ndim > 1 and "embeddings" not in name:
            values *= loudness / np.sqrt(shapes[name][1])
        tensors[name] = values.astype(np.float32)
    return tensors


def written(folder, given, change=None, loudness=1.0):
    """Writes a folder, its tensors as `change` returns or leaves them."""
    folder.mkdir()
    tensors = drawn(given, loudness=loudness)
    tensors = (change(tensors) or tensors) if change else tensors
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(given))
    return folder


def inputs(given, length=0, seed=4):
    """Makes four rows: full length, two padded ones, one of a single token."""
    random, choices = np.random.RandomState(seed), ()
    if given["architectures"] == ["ModernBertForMultipleChoice"]:
        choices = (3,)
    length = length or given["max_position_embeddings"]
    lengths = np.array([length, 5, length - 3, 1]).reshape(4, *(1 for _ in choices), 1)
    mask = np.broadcast_to(np.arange(length) < lengths, (4, *choices, length))
    # Piece 0 is padding: `transformers` gives its embedding no gradient.
    ids = np.ascontiguousarray(
        random.randint(1, given["vocab_size"], mask.shape) * mask
    )
    return {
        "input_ids": ids,
        "input_mask": mask.astype(np.int64, order="C"),
        "segment_ids": np.zeros(ids.shape, np.int64),
    }
