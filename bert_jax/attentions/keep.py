"""`--mode=predict` with attention: who looks at whom, beside each answer."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float16, Int

from bert_jax.data.rows import BatchSize
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import KERNELS, BertConfig
from bert_jax.tasks.task import Batch, Outputs, PredictionBatches, Predictor
from bert_jax.types import Arrays

FIELD = "config.predict.attentions"
# Of a batch's probabilities in float32, on the device. A batch has at least one row.
BUDGET = 1 << 30
# Names in batches and outputs that no task has.
_PLACES, _PROBABILITIES = "attentions/places", "attentions/probabilities"
_INPUTS = ("input_ids", "input_mask", "segment_ids")
_KEPT = (_PLACES, _PROBABILITIES, *(f"attentions/{name}" for name in _INPUTS))

# A row of the input, which of its windows or choices, its pieces' ids and segments, and
# [layers, heads, from, to], without padding.
Keep = Callable[
    [
        int,
        int,
        Int[np.ndarray, "length"],
        Int[np.ndarray, "length"],
        Float16[np.ndarray, "layers heads length length"],
    ],
    None,
]


class WithAttentions(Predictor):
    """Another predictor; its outputs also hold the attention's probabilities."""

    def __init__(self, predictor: Predictor, config: BertConfig, params: Any):
        """Stores its arguments.

        Args:
          config: of the encoder.
          params: the weights that `step` will be given.

        Raises:
          UserError: they are not those of a BERT.
        """
        if "encoder" not in params.get("bert", {}):
            raise UserError(f"{FIELD}: this model's encoder is not BERT; leave it out")
        self._inner = predictor
        # A kernel keeps no probabilities; the answers still come from it. A user's own
        # attention computes others than einsum.
        attention = "einsum" if config.attention in KERNELS else config.attention
        self._attention = attention
        keeping = dataclasses.replace(
            config, attention=attention, epilogue="xla", remat="none"
        )
        self._bert = FAMILIES[config.architecture].trunk(keeping)
        self._rows = 0  # encoded so far

    def parse(self, row: dict[str, Any]) -> Any:
        """As the other predictor's."""
        return self._inner.parse(row)

    def encode(self, parsed: Sequence[Any], size: BatchSize) -> PredictionBatches:
        """The other's batches; each row also says where it comes from."""
        questions = self._inner.encode(parsed, size)
        if questions.places is None:
            raise UserError(
                f"{FIELD}: this task's predictor gives no PredictionBatches.places; "
                "leave the field out, or see bert_jax/tasks/predictor.py"
            )
        first, self._rows = self._rows, self._rows + len(parsed)
        batches = [
            {**batch, _PLACES: np.array(places, np.int32) + np.array([first, 0])}
            for batch, places in zip(questions.batches, questions.places, strict=True)
        ]
        return questions._replace(batches=batches)

    def step(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """The other's outputs, and the probabilities before dropout in float16.

        Computes the encoder by itself: this works with any task's head. XLA merges it
        with the same computation of the other predictor's where it can.
        """
        length = batch["input_ids"].shape[-1]
        inputs = [batch[name].reshape(-1, length) for name in _INPUTS]
        _, kept = self._bert.apply(
            {"params": params["bert"]}, *inputs, mutable=["intermediates"]
        )
        if not kept:
            raise UserError(
                f"{FIELD}: config.model.attention={self._attention} returns None for "
                "its probabilities; return them, or leave the field out"
            )
        encoder = kept["intermediates"]["encoder"]
        if "layers" in encoder:
            probabilities = encoder["layers"]["attention"]["probabilities"][0]
        else:
            names = (f"layer_{i}" for i in range(len(encoder)))
            probabilities = jnp.stack(
                [encoder[name]["attention"]["probabilities"][0] for name in names]
            )
        probabilities = jnp.moveaxis(probabilities.astype(jnp.float16), 0, 1)
        rows = batch["input_ids"].shape[:-1]
        return {
            **self._inner.step(params, batch),
            _PLACES: batch[_PLACES],
            _PROBABILITIES: probabilities.reshape(*rows, *probabilities.shape[1:]),
            **{f"attentions/{name}": batch[name] for name in _INPUTS},
        }


def rows_at_once(config: BertConfig, shape: tuple[int, ...], size: int) -> int:
    """How many rows of `size` a batch may have within BUDGET.

    Args:
      shape: of the longest row's `input_ids`: [length] or [choices, length].
    """
    each = 4 * config.num_hidden_layers * config.num_attention_heads * shape[-1] ** 2
    return max(1, min(size, BUDGET // (each * math.prod(shape[:-1]))))


def keeping(
    submit: Callable[[Batch], Callable[[], Outputs]], keep: Keep
) -> Callable[[Batch], Callable[[], Outputs]]:
    """As `submit`, and hands each row's probabilities to `keep`.

    Waits for each batch: the probabilities of many would fill the memory.
    """

    def submit_and_keep(batch: Batch) -> Callable[[], Outputs]:
        outputs = submit(batch)()
        kept = {name: outputs.pop(name) for name in _KEPT}
        places, probabilities = kept[_PLACES], kept[_PROBABILITIES]
        ids, mask, segments = (kept[f"attentions/{name}"] for name in _INPUTS)
        choices = math.prod(ids.shape[1:-1])
        for index, (row, part) in enumerate(places):
            for choice in np.ndindex(ids.shape[1:-1]):
                here = (index, *choice)
                real = np.flatnonzero(mask[here])
                if not len(real):  # a choice that this row does not have
                    continue
                keep(
                    int(row),
                    int(part) * choices + sum(choice),
                    ids[here][real],
                    segments[here][real],
                    probabilities[here][:, :, real][:, :, :, real],
                )
        return lambda: outputs

    return submit_and_keep
