"""Fine-tuning with several texts in a row (`config.task.texts_per_row`), for speed.

Losses and weights are computed as if each text had a row, so that a task defines them
once.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.config.phases import Phase
from bert_jax.data import packing
from bert_jax.data.rows import Batch, Feature, Rows
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.architectures import HEADS
from bert_jax.models.encoder import Packed
from bert_jax.tasks.finetuning import Answer, Example, Finetuning
from bert_jax.types import Arrays, DropoutKey, Scalars


class SharedRows(Finetuning[Example, Answer]):
    """A base class of tasks whose logits and labels are of whole texts."""

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        self.texts_per_row = self._texts_per_row()

    def table(self, features: Sequence[Feature]) -> Rows:
        """With `task.texts_per_row`, rows that share those of training batches."""
        if self.texts_per_row == 1:
            return super().table(features)
        return packing.PackedRows(features, self.padding, self.texts_per_row)

    def phases(self) -> list[Phase]:
        (phase,) = super().phases()
        if self.texts_per_row == 1:
            return [phase]
        shapes = packing.shapes(phase.shapes["input_ids"], self.texts_per_row)
        return [phase._replace(shapes=shapes, batch_size=shapes["input_ids"][0])]

    def counted(self, batch: Batch) -> tuple[float, float]:
        if self.texts_per_row == 1:
            return super().counted(batch)
        return float(self.texts_per_row), float(batch["input_mask"].mean())

    def logits(
        self, params: Any, batch: Arrays, key: DropoutKey = None
    ) -> dict[str, Array]:
        """The head's logits, float32, [texts, labels]."""
        packed = Packed.of(batch)
        if packed is None:
            return super().logits(params, batch, key)
        inputs = (batch[n] for n in ("input_ids", "input_mask", "segment_ids"))
        outputs = self.model.apply({"params": params}, *inputs, key, packed)
        assert isinstance(outputs, dict)
        logits = outputs["logits"]
        assert isinstance(logits, Array)
        return {"logits": logits.reshape(-1, logits.shape[-1])}

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        texts = packing.by_text(batch)
        losses = self.losses(self.logits(params, batch, key), texts)
        return {self.loss_name: jnp.sum(self.weights(texts) * losses)}

    def loss_weights(self, batch: Arrays) -> Scalars:
        return super().loss_weights(packing.by_text(batch))

    def _texts_per_row(self) -> int:
        """Of training; raises UserError where a row can have only one."""
        config = self.config
        texts = config.task.get("texts_per_row", 1)
        reasons = {
            "is for a BERT's classes, numbers and labels": (
                FAMILIES[config.model.architecture].shares_rows
                and self.head == "sequence_classification"
                and self.head not in HEADS
            ),
            "model.causal=True reads the last token": not config.model.causal,
            "task.bilstm=True reads whole rows": not config.task.get("bilstm", False),
        }
        for reason, holds in reasons.items():
            if texts > 1 and not holds:
                raise UserError(
                    f"config.task.texts_per_row={texts}: {reason}; leave it 1"
                )
        return texts
