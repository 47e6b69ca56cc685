"""A run's model, optimizer and batches in torch, by the `parity` extra."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from ml_collections import ConfigDict

from bert_jax.convert import layout
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig

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


def config_of(model: ConfigDict) -> Any:
    """The config of `transformers` for `config.model`, as an export would write it."""
    own = BertConfig.create(model, vocab_size=0)
    form = FAMILIES[own.architecture].layout
    return transformers.AutoConfig.for_model(
        **form.config_fields(layout.Weights(own, {}, ""))
    )


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
        return "norm" not in name.lower() and not name.endswith("bias")

    groups = [
        {
            "params": [p for n, p in network.named_parameters() if decays(n) == kind],
            "weight_decay": fields.weight_decay if kind else 0.0,
        }
        for kind in (True, False)
    ]
    betas = (fields.beta1, fields.beta2)
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=fields.eps, **form)
