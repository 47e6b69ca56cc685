"""`--mode=predict` with attention: attention probabilities next to each answer.

A row's probabilities are the tensor `attentions_ROW` of NAME.safetensors in float16,
[layers, heads, from, to], without padding. Rows count from 0. A row that the task cuts
into several windows, or that has several choices, continues in `attentions_ROW_1`,
`attentions_ROW_2`, ... The file's metadata has, under each tensor's name, JSON with the
`tokens` and their `segments`.
"""

import contextlib
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from safetensors.numpy import save
from tokenizers import Tokenizer

from bert_jax.data.rows import Feature
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import KERNELS, BertConfig
from bert_jax.runtime import processes, storage
from bert_jax.tasks.task import Outputs, Predictor, Task
from bert_jax.training.inference import Answerer
from bert_jax.types import Arrays

FIELD = "config.predict.attentions"
# Bytes of a batch's float32 probabilities on the device. A batch has at least one row.
BUDGET = 1 << 30
_KEPT = "attentions"  # an output that no task has


def of_layers(
    kept: Mapping[str, Any], attention: str, field: str
) -> list[Float[Array, "batch heads from to"]]:
    """Returns the probabilities that the layers of an encoder have kept.

    Args:
      kept: `intermediates` of the trunk, empty if `attention` keeps none.
      field: Config field or argument that requests them, for the error.

    Raises:
      UserError: `config.model.attention` returns none.
    """
    if not kept:
        raise UserError(
            f"{field}: config.model.attention={attention} returns None for its "
            "probabilities; return them, or leave it out"
        )
    encoder = kept["encoder"]
    if "layers" in encoder:
        return [*encoder["layers"]["attention"]["probabilities"][0]]
    layers = (encoder[f"layer_{index}"] for index in range(len(encoder)))
    # A layer that is applied several times has kept as many.
    return [each for layer in layers for each in layer["attention"]["probabilities"]]


@contextlib.contextmanager
def keep_attentions(answerer: Answerer, task: Task) -> Iterator[Answerer]:
    """Yields an answerer that also keeps the probabilities. At the end the first
    process writes the file of `predict.attentions`.

    Raises:
      UserError: The model has no attention, the file cannot be written, or the input
        has no rows.
    """
    name, config = task.config.predict.attentions, task.model_config
    family = FAMILIES[task.config.model.architecture]
    if not family.attends or "encoder" not in answerer.params.get("bert", {}):
        raise UserError(
            f"{FIELD}={name}: shows a Transformer's attention, and this model is "
            f"{family.title}; leave it empty"
        )
    end = ".safetensors"
    place = storage.output_path(name.removesuffix(end) + end, f"--{FIELD}")
    *choices, length = getattr(task, "row_shape", (config.max_position_embeddings,))
    heads = config.num_hidden_layers * config.num_attention_heads
    most = BUDGET // (4 * heads * math.prod(choices) * length**2)
    rows = max(1, min(task.config.predict.batch_size, most))
    keeps = WithAttentions(answerer.predictor, config, task.tokenizer)
    yield Answerer(keeps, answerer.params, answerer.mesh, rows, config)
    if not keeps.tensors:
        raise UserError(f"{FIELD}: the input has no rows, so nothing is written")
    if processes.is_first():
        storage.write_atomically(place, save(keeps.tensors, keeps.about))


class WithAttentions(Predictor):
    """Another predictor that also keeps the probabilities, in memory.

    Attributes:
      tensors: Each sequence's tensor, by its name in the file.
      about: Its tokens and segments, as JSON.
    """

    def __init__(self, inner: Predictor, config: BertConfig, tokenizer: Tokenizer):
        # A kernel keeps no probabilities, but the answers still come from it. A custom
        # attention computes other probabilities than einsum.
        self._attention = "einsum" if config.attention in KERNELS else config.attention
        keeping = dataclasses.replace(
            config, attention=self._attention, epilogue="xla", remat="none"
        )
        self._trunk = FAMILIES[config.architecture].trunk(keeping)
        self._inner, self._name = inner, tokenizer.id_to_token
        self.parse_row, self.encode = inner.parse_row, inner.encode  # type: ignore[method-assign]
        self.make_rows = inner.make_rows  # type: ignore[method-assign]
        self.tensors: dict[str, np.ndarray] = {}
        self.about: dict[str, str] = {}
        self.max_seq_length = inner.max_seq_length
        self._rows = 0  # decoded so far

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns the other's outputs, and the float16 probabilities before dropout.

        Computes the encoder by itself: this works with any task's head. XLA merges it
        with the same computation of the other predictor's where it can.
        """
        *rows, length = batch["input_ids"].shape
        names = ("input_ids", "input_mask", "segment_ids")
        inputs = [batch[name].reshape(-1, length) for name in names]
        _, kept = self._trunk.apply(
            {"params": params["bert"]}, *inputs, mutable=["intermediates"]
        )
        layers = of_layers(kept.get("intermediates", {}), self._attention, FIELD)
        found = jnp.stack([layer.astype(jnp.float16) for layer in layers], axis=1)
        found = found.reshape(*rows, *found.shape[1:])
        return {**self._inner.outputs(params, batch), _KEPT: found}

    def decode(
        self,
        examples: Sequence[Any],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[dict[str, Any]]:
        """Returns the other's answers."""
        windows: Counter[int] = Counter()
        for feature, output in zip(features, outputs, strict=True):
            row, found = self._rows + feature.example, output.pop(_KEPT)
            # Without choices there is one sequence.
            found = found.reshape(-1, *found.shape[-4:])
            ids, segments = (
                np.atleast_2d(feature.columns[name])
                for name in ("input_ids", "segment_ids")
            )
            mask = np.atleast_2d(feature.columns.get("input_mask", ids >= 0))
            for choice, real in enumerate(map(np.flatnonzero, mask)):
                if not len(real):  # a choice that this row does not have
                    continue
                part = windows[row] * len(ids) + choice
                name = f"attentions_{row}_{part}" if part else f"attentions_{row}"
                tokens = [self._name(int(i)) or f"#{i}" for i in ids[choice, real]]
                about = {"tokens": tokens, "segments": segments[choice, real].tolist()}
                self.about[name] = json.dumps(about, ensure_ascii=False)
                seen = found[choice][:, :, real][:, :, :, real]
                self.tensors[name] = np.ascontiguousarray(seen)
            windows[row] += 1
        self._rows += len(examples)
        return self._inner.decode(examples, features, outputs)
