"""Folders of modernbert: their tensors drawn at random, and their config."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert_jax.convert import layout as core
from bert_jax.families.modernbert.layout import LAYOUT

ARCHITECTURES = sorted(LAYOUT.architectures)
NAMES = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
NAMES += ("max_position_embeddings", "local_attention")
# Windows of 4 to each side, far fewer than the tokens.
WIDE = dict(zip(NAMES, (61, 48, 40, 3, 40, 8), strict=True), num_hidden_layers=4)
DEEP = dict(zip(NAMES, (97, 32, 48, 4, 64, 16), strict=True), num_hidden_layers=4)
DEEP |= {"global_attn_every_n_layers": 2, "classifier_pooling": "mean"}
# "base": the published Base, except for the number of tokens.
SIZES = {"wide": WIDE, "deep": DEEP, "base": {"vocab_size": 640}}


def fields(architecture, size, **more):
    """Returns the fields of config.json. A classifier has three labels."""
    special = {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1}
    special |= {"sep_token_id": 2, "eos_token_id": 2}
    labels = {str(i): f"LABEL_{i}" for i in range(3)}
    labelled = set(LAYOUT.architectures[architecture]) & set(core.LABELLED_HEADS)
    found = {"architectures": [architecture], "model_type": "modernbert", **special}
    found |= {**SIZES[size], **({"id2label": labels} if labelled else {})}
    return found | more


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
    ids = random.randint(1, given["vocab_size"], mask.shape) * mask
    columns = {"input_ids": np.ascontiguousarray(ids)}
    columns["input_mask"] = mask.astype(np.int64, order="C")
    return columns | {"segment_ids": np.zeros(ids.shape, np.int64)}
