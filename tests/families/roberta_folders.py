"""RoBERTas of `transformers` with random, loud weights, and a vocabulary beside."""

import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.tokenization.byte_level import ANGLED

# Our names of what each gives, and theirs.
HEADS = {
    "RobertaModel": {"pooled": "pooler_output"},
    "RobertaForMaskedLM": {"masked_lm_logits": "logits"},
    "RobertaForSequenceClassification": {"logits": "logits"},
    "RobertaForTokenClassification": {"logits": "logits"},
    "RobertaForQuestionAnswering": {
        "start_logits": "start_logits",
        "end_logits": "end_logits",
    },
    "RobertaForMultipleChoice": {"logits": "logits"},
}
# Layers, hidden size, heads, inner size.
SIZES = {
    "tiny": (2, 32, 2, 48),
    "small": (3, 64, 4, 128),
    "base": (12, 768, 12, 3072),  # the published one, but for pieces and positions
}
TEXT = """the quick brown fox jumps over the lazy dog while seven cats watch it go
the dog was quick and the fox was lazy so the cats watched them both going home"""
PIECES = 300


def made(architecture, size="tiny", **fields):
    """A model of `transformers`, and its config; skips without the extra."""
    torch = pytest.importorskip("torch", reason="needs the parity extra")
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    layers, hidden, heads, inner = SIZES[size]
    own = {
        "vocab_size": PIECES,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": 42,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "num_labels": 2 if architecture == "RobertaForQuestionAnswering" else 3,
    }
    config = transformers.RobertaConfig(**(own | fields))
    model = getattr(transformers, architecture)(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn_like(parameter)
            if name.endswith("LayerNorm.weight"):
                values = values.uniform_(0.5, 2.0)
            elif size == "base" and values.ndim > 1:
                # At 0.7 float32's own gradients are 2e-4 of the largest from float64's.
                values *= 0.5 * values.shape[1] ** -0.5
            else:
                values *= 0.25
            parameter.copy_(values)
    return model


def saved(folder, architecture="RobertaForMaskedLM", size="tiny", **fields):
    """Saves `made` with a tokenizer of as many pieces; returns the model."""
    model = made(architecture, size, **fields)
    model.save_pretrained(folder)
    tokenization.save(ANGLED.train([TEXT] * 3, PIECES, lowercase=False), folder)
    return model


def batch(architecture):
    """Columns of rows of three lengths, padded as `transformers` pads."""
    shape = (4, 3, 30) if architecture.endswith("MultipleChoice") else (4, 30)
    ids = np.random.default_rng(0).integers(5, PIECES, shape)
    mask = np.ones(shape, int)
    for row, length in ((1, 20), (2, 7)):
        ids[row, ..., length:], mask[row, ..., length:] = 1, 0
    return {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


def outputs_of(model, columns):
    """What a model of `transformers` gives, under our names, hidden states stacked."""
    import torch

    found = model(
        input_ids=torch.tensor(columns["input_ids"]),
        attention_mask=torch.tensor(columns["input_mask"]),
        output_hidden_states=True,
    )
    names = HEADS[type(model).__name__]
    outputs = {ours: found[theirs] for ours, theirs in names.items()}
    return {"hidden_states": torch.stack(found.hidden_states), **outputs}
