"""`--mode=predict` with attention: who attends to whom, beside each answer.

A row's probabilities are the tensor `attentions_ROW` of NAME.safetensors in float16,
[layers, heads, from, to], without padding. Rows count from 0. A row that the task cuts
into several windows, or that has several choices, goes on in `attentions_ROW_1`,
`attentions_ROW_2`, ... The file's metadata has, under each tensor's name, JSON with the
`tokens` and their `segments`.
"""

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float16, Int
from safetensors.numpy import save
from tokenizers import Tokenizer

from bert_jax.data.rows import BatchSize
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import KERNELS, BertConfig
from bert_jax.runtime import processes, storage
from bert_jax.tasks.task import Batch, Outputs, PredictionBatches, Predictor, Task
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
Submit = Callable[[Batch], Callable[[], Outputs]]


@contextlib.contextmanager
def around(
    predictor: Predictor, task: Task, params: Any, rows: int
) -> Iterator[tuple[Predictor, int, Callable[[Submit], Submit]]]:
    """Keeps a predictor's probabilities; at the end the first process writes the file
    of `predict.attentions`.

    Args:
      rows: that the predictor takes at once.

    Yields:
      The predictor; its rows at once; and a wrapper for the function that submits
      batches.

    Raises:
      UserError: the model has no attention; the file cannot be written; the input has
        no rows.
    """
    name, config = task.config.predict.attentions, task.model_config
    family = FAMILIES[task.config.model.architecture]
    if not family.attends:
        raise UserError(
            f"{FIELD}={name}: shows a Transformer's attention, and this model is "
            f"{family.title}; leave it empty"
        )
    if storage.in_bucket(name):
        raise UserError(f"{FIELD}={name}: name a local file, and copy it")
    end = ".safetensors"
    place = Path(storage.output(name.removesuffix(end) + end, f"--{FIELD}"))
    kept = Attentions(task.tokenizer)
    keep: Keep = kept.add if processes.is_first() else lambda *_: None
    longest = getattr(task, "row_shape", (config.max_position_embeddings,))
    yield (
        WithAttentions(predictor, config, params),
        rows_at_once(config, longest, rows),
        lambda submit: keeping(submit, keep),
    )
    if processes.is_first():
        kept.write(place)


class Attentions:
    """The probabilities of a prediction, in memory until its end."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._tensors: dict[str, np.ndarray] = {}
        self._about: dict[str, str] = {}

    def add(
        self,
        row: int,
        part: int,
        ids: Int[np.ndarray, "length"],
        segments: Int[np.ndarray, "length"],
        probabilities: Float16[np.ndarray, "layers heads length length"],
    ) -> None:
        """Keeps a sequence."""
        name = f"attentions_{row}_{part}" if part else f"attentions_{row}"
        tokens = [self._tokenizer.id_to_token(int(i)) or f"#{i}" for i in ids]
        about = {"tokens": tokens, "segments": segments.tolist()}
        self._about[name] = json.dumps(about, ensure_ascii=False)
        self._tensors[name] = np.ascontiguousarray(probabilities)

    def write(self, place: Path) -> None:
        """Writes the file completely or not at all.

        Raises:
          UserError: nothing was kept.
        """
        if not self._tensors:
            raise UserError(f"{FIELD}: the input has no rows, so nothing is written")
        storage.write_atomically(place, save(self._tensors, self._about))


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


def keeping(submit: Submit, keep: Keep) -> Submit:
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
