"""Maps BERT's parameters to the names and axes of `transformers`' tensors.

A kernel is [inputs..., outputs...] here, and [outputs, inputs] in PyTorch.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float32

from bert_jax.models.config import BertConfig

Array = Float32[np.ndarray, "..."]
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: its path and shape here, and its tensor in `transformers`.

    Attributes:
      flat: Shape as a vector, or as a matrix [inputs, outputs].
      name: Name of the tensor. Empty means that there is none, and zeros are read.
      fused: Its index, and the number of parameters that one tensor of theirs joins
        along its outputs.
      conv: Whether PyTorch keeps the kernel as [inputs, outputs] (`Conv1D`).
    """

    path: tuple[str, ...]
    shape: Shape
    flat: Shape
    name: str
    fused: tuple[int, int] = (0, 1)
    conv: bool = False

    def of(self, params: Mapping[str, Any]) -> Any:
        """Returns its value among a model's, a NumPy or JAX array."""
        value: Any = params
        for key in self.path:
            value = value[key]
        return value

    @property
    def _is_transposed(self) -> bool:
        return self.path[-1] == "kernel" and not self.conv

    @property
    def axis(self) -> int:
        """The axis of the outputs in their tensor."""
        return 0 if self._is_transposed else -1

    @property
    def their_shape(self) -> Shape:
        shape = [*(self.flat[::-1] if self._is_transposed else self.flat)]
        shape[self.axis] *= self.fused[1]
        return tuple(shape)

    def take(self, array: Array) -> Array:
        """Converts their array to ours."""
        index, count = self.fused
        part = np.split(array, count, self.axis)[index]
        part = part.T if self._is_transposed else part
        return np.ascontiguousarray(part.reshape(self.shape))

    def give(self, array: Array) -> Array:
        """Converts our array to theirs, or to its part of theirs."""
        array = array.reshape(self.flat)
        return np.ascontiguousarray(array.T if self._is_transposed else array)


def of_bert(part: str, config: BertConfig, labels: int = 0) -> Iterator[Parameter]:
    """Yields the parameters of a part of BERT.

    Args:
      part: `bert` (without its pooler), `pooler`, `decoder` (an output matrix that is
        not the embeddings'), or a head.
      labels: Number of outputs of a head that has one for each label.
    """
    hidden = config.hidden_size
    match part:
        case "bert":
            yield from _trunk(config)
        case "pooler":
            yield from dense_parameters(
                "bert.pooler", "bert.pooler.dense", hidden, hidden
            )
        case "masked_lm":
            name, size = "cls.predictions", config.vocab_size
            transform = f"{name}.transform"
            yield from dense_parameters(
                f"{part}.dense", f"{transform}.dense", hidden, hidden
            )
            yield from norm_parameters(
                f"{part}.layer_norm", f"{transform}.LayerNorm", hidden
            )
            yield Parameter((part, "bias"), (size,), (size,), f"{name}.bias")
        case "decoder":
            name, shape = "cls.predictions.decoder.weight", (config.vocab_size, hidden)
            yield Parameter((part, "embedding"), shape, shape, name)
        case "next_sentence":
            yield from dense_parameters(part, "cls.seq_relationship", hidden, 2)
        case "sequence_classification" | "token_classification":
            yield from dense_parameters(part, "classifier", hidden, labels)
        case "question_answering":
            yield from dense_parameters(part, "qa_outputs", hidden, 2)
        case "multiple_choice":
            yield from dense_parameters(part, "classifier", hidden, 1)
        case _:
            raise ValueError(part)


def _trunk(config: BertConfig) -> Iterator[Parameter]:
    for name, rows in (
        ("word_embeddings", config.vocab_size),
        ("position_embeddings", config.max_position_embeddings),
        ("token_type_embeddings", config.type_vocab_size),
    ):
        both = f"bert.embeddings.{name}"
        yield embedding_table(both, both, rows, config.hidden_size)
    name = "bert.embeddings.LayerNorm"
    yield from norm_parameters("bert.embeddings.layer_norm", name, config.hidden_size)
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = (config.num_attention_heads, config.head_dim)
    for index in range(config.num_hidden_layers):
        path, name = f"bert.encoder.layer_{index}", f"bert.encoder.layer.{index}"
        for which in ("query", "key", "value"):
            theirs = f"{name}.attention.self.{which}"
            yield from dense_parameters(
                f"{path}.attention.{which}", theirs, hidden, heads
            )
        for ours, theirs, inputs, outputs in (
            ("attention.output", "attention.output.dense", heads, hidden),
            ("intermediate", "intermediate.dense", hidden, inner),
            ("output", "output.dense", inner, hidden),
        ):
            yield from dense_parameters(
                f"{path}.{ours}", f"{name}.{theirs}", inputs, outputs
            )
        attention = f"{name}.attention.output.LayerNorm"
        yield from norm_parameters(f"{path}.attention_layer_norm", attention, hidden)
        yield from norm_parameters(
            f"{path}.layer_norm", f"{name}.output.LayerNorm", hidden
        )


def dense_parameters(
    path: str,
    name: str,
    inputs: int | Shape,
    outputs: int | Shape,
    *,
    bias: bool = True,
    fused: tuple[int, int] = (0, 1),
    conv: bool = False,
) -> Iterator[Parameter]:
    """Yields a linear layer's kernel and bias. See `Parameter`.

    Args:
      path: Our path, such as `bert.pooler`.
      name: Their name, without `.weight`.
    """
    inputs, outputs = (n if isinstance(n, tuple) else (n,) for n in (inputs, outputs))
    keys, flat = path.split("."), (math.prod(inputs), math.prod(outputs))
    shape, form = inputs + outputs, (fused, conv)
    yield Parameter((*keys, "kernel"), shape, flat, f"{name}.weight", *form)
    if bias:
        yield Parameter((*keys, "bias"), outputs, flat[1:], f"{name}.bias", *form)


def norm_parameters(
    path: str, name: str, size: int, *, bias: bool = True
) -> Iterator[Parameter]:
    """Yields a LayerNorm's scale and bias. Arguments are as in `dense_parameters`."""
    for ours, theirs in (("scale", "weight"), ("bias", "bias"))[: 1 + bias]:
        keys = (*path.split("."), ours)
        yield Parameter(keys, (size,), (size,), f"{name}.{theirs}")


def embedding_table(path: str, name: str, rows: int, size: int) -> Parameter:
    """Returns the matrix of an embedding. Arguments are as in `dense_parameters`."""
    keys, shape = (*path.split("."), "embedding"), (rows, size)
    return Parameter(keys, shape, shape, f"{name}.weight")
