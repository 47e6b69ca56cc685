"""SWAG with ELMo: ESIM reads each ending with its context (esim.py)."""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from bert_jax.tasks.swag import Swag
from bert_jax.tasks.task import Shapes
from bert_jax.types import Arrays, DropoutKey
from families.elmo import esim
from families.elmo.config import flops
from families.elmo.esim import Inference, Scorer
from families.elmo.finetuning import ElmoFinetuning
from families.elmo.systems import ATTENTION


class ElmoSwag(ElmoFinetuning, Swag):
    """Each ending is a row, `<S> context </S> <S> ending </S>`."""

    head_module, reading_module = Scorer, Inference
    systems = (ATTENTION,)

    @property
    def pairs(self) -> bool:
        """A context and an ending."""
        return True

    @property
    def between(self) -> list[int]:
        """The context's end, and the ending's begin: each is read by itself."""
        return [self.special.sep, self.special.cls]

    def logits(
        self, params: Any, batch: Arrays, key: DropoutKey = None
    ) -> dict[str, Array]:
        """`logits`: the score of each ending."""
        shape = batch["input_ids"].shape  # [batch, endings, words]
        columns = ("characters", "input_ids", "input_mask", "segment_ids")
        rows = {n: jnp.reshape(batch[n], (-1, *batch[n].shape[2:])) for n in columns}
        outputs = super().logits(params, rows, key)
        return {"logits": outputs["logits"].reshape(shape[:2])}

    def flops(self, shapes: Shapes) -> int:
        """ELMo's, forward only, and ESIM's."""
        words = math.prod(shapes["input_ids"])
        reading = flops(self.model_config, words) // 3
        return reading + esim.flops(self.model_config, self.system, words)
