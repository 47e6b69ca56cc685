"""The same training step in torch, with `transformers`' BertForPreTraining, its
classifier, or the masked LM of another family.

The optimizer is torch's AdamW (foreach or fused, whichever is faster here), with BERT's
weight decay by name, and the gradients' norm is clipped, as on our side.
"""

import contextlib
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from ml_collections import ConfigDict

from experiments.lib import torch_side
from experiments.lib.torch_side import device, synchronize

IGNORED = -100  # torch's cross entropy leaves out these labels


class Network:
    """A model with its optimizer; sides that differ in dtype or head share it."""

    def __init__(self, config: ConfigDict, attention: str):
        torch.manual_seed(0)
        theirs = torch_side.config_of(config.model)
        theirs._attn_implementation = attention
        kind: Any = transformers.AutoModelForMaskedLM  # all that other families have
        if config.task.name != "pretraining":
            kind = transformers.AutoModelForSequenceClassification
        elif theirs.model_type == "bert":
            kind = transformers.AutoModelForPreTraining
        network: Any = kind.from_config(theirs)
        self.module = network.to(device()).train()
        self.parameters = sum(p.numel() for p in self.module.parameters())
        self._clip = config.optimizer.clip_norm
        self._fields = config.optimizer
        self.optimizer = ""
        self._adam: torch.optim.Optimizer | None = None

    def update(self) -> None:
        """Clips and applies the gradients, and drops them."""
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), self._clip)
        if self._adam is None:
            self._choose_adam()
        assert self._adam is not None
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def _choose_adam(self) -> None:
        """Takes the faster of AdamW's two forms, by three updates of each."""
        seconds = {}
        rate = self._fields.learning_rate
        forms = {
            form: torch_side.adamw(self.module, self._fields, rate, **{form: True})
            for form in ("foreach", "fused")
        }
        for form, adam in forms.items():
            adam.step()  # makes the moments
            synchronize()
            start = time.perf_counter()
            for _ in range(3):
                adam.step()
            synchronize()
            seconds[form] = time.perf_counter() - start
        self.optimizer = min(seconds, key=lambda form: seconds[form])
        self._adam = forms[self.optimizer]


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
        """Takes so many steps and waits; the host's batch goes to the device in each.

        Returns:
          The last step's loss.
        """
        loss = torch.tensor(math.nan)
        for _ in range(steps):
            inputs = {
                name: torch.from_numpy(rows).to(device(), non_blocking=True)
                for name, rows in self._batch.items()
            }
            with self._precision():
                loss = self._loss(self.network.module, inputs)
            loss.backward()
            self.network.update()
        return loss.item()

    def _precision(self) -> Any:
        if self._dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast(device(), dtype=getattr(torch, self._dtype))


def theirs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch of ours with the names and the labels that `transformers` takes."""
    if "label" in batch:
        labels = batch["label"].astype(np.int64)
        return torch_side.inputs(batch) | {"labels": labels}
    predicted = batch["masked_lm_weights"] > 0
    chosen = np.where(predicted, batch["masked_lm_ids"], IGNORED).astype(np.int64)
    labels = np.full(batch["input_ids"].shape, IGNORED, np.int64)
    rows = np.nonzero(predicted)[0]
    labels[rows, batch["masked_lm_positions"][predicted]] = chosen[predicted]
    inputs = torch_side.inputs(batch)
    if inputs["token_type_ids"].any():  # a model with segments, and so with pairs
        inputs["next_sentence_label"] = batch["next_sentence_labels"].astype(np.int64)
    else:
        del inputs["token_type_ids"]
    return {
        **inputs,
        "labels": labels,
        "positions": batch["masked_lm_positions"].astype(np.int64),
        "chosen": chosen,
    }


def _loss(network: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """As `transformers` has it."""
    left_out = ("positions", "chosen")
    return network(**{k: v for k, v in inputs.items() if k not in left_out}).loss


def _gathered_loss(network: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The same loss, with the masked LM head at the predicted positions alone."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    encoded = network.base_model(**{k: inputs[k] for k in names if k in inputs})
    hidden = encoded.last_hidden_state
    index = inputs["positions"].unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    words, pairs = _scored(network, torch.gather(hidden, 1, index), encoded)
    cross_entropy = torch.nn.functional.cross_entropy
    masked = cross_entropy(
        words.flatten(0, 1).float(), inputs["chosen"].flatten(), ignore_index=IGNORED
    )
    if pairs is None:
        return masked
    return masked + cross_entropy(pairs.float(), inputs["next_sentence_label"])


def _scored(network: Any, hidden: torch.Tensor, encoded: Any) -> tuple[Any, Any]:
    """The logits of pieces, and those of pairs where the model has them."""
    if hasattr(network, "cls"):
        return network.cls(hidden, encoded.pooler_output)
    if hasattr(network, "lm_head"):
        return network.lm_head(hidden), None
    return network.decoder(network.head(hidden)), None
