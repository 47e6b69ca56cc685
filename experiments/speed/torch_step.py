"""The same training step in torch, with BERT's or a family's heads of `transformers`.

The optimizer is torch's AdamW in its fused form, which was the faster one in all
results, with BERT's weight decay by name, and the gradients' norm is clipped, as on our
side.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from ml_collections import ConfigDict

from bert_jax.convert import layout
from bert_jax.data.workers import available_cores
from bert_jax.family import FAMILIES, bert_config

IGNORED = -100  # torch's cross entropy leaves out these labels
_INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}


def set_up() -> None:
    """Makes torch use all cores, and on a GPU TF32, as JAX does."""
    torch.set_num_threads(available_cores())
    torch.set_float32_matmul_precision("high")


def device_name() -> str:
    """Returns cuda where there is a GPU, else cpu."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def config_of(model: ConfigDict) -> Any:
    """Returns the config of `transformers` for `config.model`, as in an export."""
    own = bert_config(model, vocab_size=0)
    form = FAMILIES[own.architecture].layout
    return transformers.AutoConfig.for_model(
        **form.config_fields(layout.Weights(own, {}, ""))
    )


def model_inputs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a batch's inputs by the names of `transformers`, in int64."""
    return {theirs: batch[ours].astype(np.int64) for theirs, ours in _INPUTS.items()}


def adamw(network: Any, fields: ConfigDict, rate: float) -> torch.optim.AdamW:
    """Returns AdamW with BERT's weight decay: none of biases and LayerNorm.

    Args:
      fields: Fields of `config.optimizer`.
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
    return torch.optim.AdamW(groups, rate, betas, eps=fields.eps, fused=True)


class Network:
    """A model with its optimizer. Sides that differ in their head share it."""

    def __init__(self, config: ConfigDict, attention: str):
        torch.manual_seed(0)
        theirs = config_of(config.model)
        if attention == "eager":  # else sdpa, for the models that have it
            theirs._attn_implementation = attention
        pretrains = config.task.name == "pretraining"
        kind = "PreTraining" if pretrains else "SequenceClassification"
        network = getattr(transformers, f"AutoModelFor{kind}").from_config(theirs)
        self.module = network.to(device_name()).train()
        self.parameters = sum(p.numel() for p in self.module.parameters())
        fields = config.optimizer
        self._adam = adamw(self.module, fields, fields.learning_rate)
        self._clip_norm = fields.clip_norm

    def update(self) -> None:
        """Clips and applies the gradients, and drops them."""
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), self._clip_norm)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)


class TorchStep:
    """One side: a network, how it is called, and a batch."""

    def __init__(
        self,
        network: Network,
        batch: Mapping[str, np.ndarray],
        dtype: str,
        *,
        compiles: bool,
        gathered: bool,
    ):
        self.network, self._batch, self._dtype = network, batch, dtype
        loss = _gathered_loss if gathered else _loss
        self._loss = torch.compile(loss) if compiles else loss

    def __call__(self, steps: int) -> float:
        """Takes `steps` steps and waits. The host's batch goes to the device in each.

        Returns:
          The last step's loss.
        """
        loss = torch.tensor(math.nan)
        for _ in range(steps):
            inputs = {
                name: torch.from_numpy(rows).to(device_name(), non_blocking=True)
                for name, rows in self._batch.items()
            }
            lowers = self._dtype != "float32"
            with torch.autocast(device_name(), dtype=torch.bfloat16, enabled=lowers):
                loss = self._loss(self.network.module, inputs)
            loss.backward()
            self.network.update()
        return loss.item()


def to_torch_batch(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a batch of ours with the names and labels of `transformers`."""
    inputs = model_inputs(batch)
    if "label" in batch:
        return inputs | {"labels": batch["label"].astype(np.int64)}
    predicted = batch["masked_lm_weights"] > 0
    chosen = np.where(predicted, batch["masked_lm_ids"], IGNORED).astype(np.int64)
    labels = np.full(batch["input_ids"].shape, IGNORED, np.int64)
    rows = np.nonzero(predicted)[0]
    labels[rows, batch["masked_lm_positions"][predicted]] = chosen[predicted]
    return {
        **inputs,
        "labels": labels,
        "next_sentence_label": batch["next_sentence_labels"].astype(np.int64),
        "positions": batch["masked_lm_positions"].astype(np.int64),
        "chosen": chosen,
    }


def _loss(network: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Computes the loss as `transformers` does. Some models have no segments."""
    taken = inspect.signature(network.forward).parameters
    return network(**{k: v for k, v in inputs.items() if k in taken}).loss


def _gathered_loss(network: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Computes the same loss, the masked LM head at predicted positions only."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    encoded = network.bert(**{name: inputs[name] for name in names})
    hidden = encoded.last_hidden_state
    index = inputs["positions"].unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    words, pairs = network.cls(torch.gather(hidden, 1, index), encoded.pooler_output)
    cross_entropy = torch.nn.functional.cross_entropy
    masked = cross_entropy(
        words.flatten(0, 1).float(), inputs["chosen"].flatten(), ignore_index=IGNORED
    )
    return masked + cross_entropy(pairs.float(), inputs["next_sentence_label"])
