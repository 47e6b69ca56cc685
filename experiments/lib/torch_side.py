"""A run's model, optimizer and batches in torch, by the `parity` extra."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from ml_collections import ConfigDict

_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings", "type_vocab_size"),
    *("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("initializer_range", "layer_norm_eps"),
)
_INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    if device() == "cuda":
        torch.cuda.synchronize()


def config_of(model: ConfigDict) -> transformers.BertConfig:
    """The config of `transformers` for `config.model`."""
    return transformers.BertConfig(**{name: model[name] for name in _SIZES})


def inputs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch's inputs under the names of `transformers`, in torch's integers."""
    return {theirs: batch[ours].astype(np.int64) for theirs, ours in _INPUTS.items()}


def adamw(
    network: Any, fields: ConfigDict, rate: float, **form: bool
) -> torch.optim.AdamW:
    """AdamW with BERT's weight decay: none of biases and LayerNorm.

    Args:
      fields: `config.optimizer`.
      form: of torch's implementation: foreach or fused.
    """

    def decays(name: str) -> bool:
        return "LayerNorm" not in name and not name.endswith("bias")

    groups = [
        {
            "params": [p for n, p in network.named_parameters() if decays(n) == kind],
            "weight_decay": fields.weight_decay if kind else 0.0,
        }
        for kind in (True, False)
    ]
    betas = (fields.beta1, fields.beta2)
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=fields.eps, **form)
