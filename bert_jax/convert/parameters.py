"""Maps BERT's parameters to their names and axes in Google's and Hugging Face's files.

A kernel is [inputs..., outputs...] here, [inputs, outputs] in Google's checkpoints and
[outputs, inputs] in PyTorch's. The names are from modeling.py, run_classifier.py and
run_squad.py (google-research/bert) and from `transformers`.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float32

from bert_jax.models.config import BertConfig

Array = Float32[np.ndarray, "..."]
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: its path and shape here, and its names elsewhere.

    Attributes:
      flat: the shape as a vector, or as a matrix [inputs, outputs].
      huggingface: empty if `transformers` has no such parameter; zeros if read.
      google: empty if Google's code has no such parameter.
      fused: its index, and the number of parameters that one tensor of theirs joins
        along its outputs.
      conv: PyTorch keeps the kernel as [inputs, outputs] (`Conv1D`).
    """

    path: tuple[str, ...]
    shape: Shape
    flat: Shape
    huggingface: str
    google: str = ""
    fused: tuple[int, int] = (0, 1)
    conv: bool = False

    def of(self, params: Mapping[str, Any]) -> Any:
        """Returns its value among a model's, an array of NumPy or of JAX."""
        value: Any = params
        for key in self.path:
            value = value[key]
        return value

    def name(self, dialect: str) -> str:
        return self.google if dialect == "google" else self.huggingface

    def axis(self, dialect: str) -> int:
        """Returns the axis of the outputs in their tensor."""
        return 0 if self._is_transposed(dialect) else -1

    def their_shape(self, dialect: str) -> Shape:
        shape = [*(self.flat[::-1] if self._is_transposed(dialect) else self.flat)]
        shape[self.axis(dialect)] *= self.fused[1]
        return tuple(shape)

    def take(self, array: Array, dialect: str) -> Array:
        """Converts their array to ours."""
        index, count = self.fused
        part = np.split(array, count, self.axis(dialect))[index]
        part = part.T if self._is_transposed(dialect) else part
        return np.ascontiguousarray(part.reshape(self.shape))

    def give(self, array: Array, dialect: str) -> Array:
        """Converts our array to theirs, or to its part of theirs."""
        array = array.reshape(self.flat)
        transposed = self._is_transposed(dialect)
        return np.ascontiguousarray(array.T if transposed else array)

    def _is_transposed(self, dialect: str) -> bool:
        if dialect == "google":  # multiplied with transpose_b=True there
            return self.google.endswith("output_weights")
        return self.path[-1] == "kernel" and not self.conv


def of_bert(part: str, config: BertConfig, labels: int = 0) -> Iterator[Parameter]:
    """Yields the parameters of a part of BERT.

    Args:
      part: `bert` (without its pooler), `pooler`, `decoder` (an output matrix that is
        not the embeddings'), or a head.
      labels: outputs of a head that has one for each label.
    """
    hidden = config.hidden_size
    match part:
        case "bert":
            yield from _trunk(config)
        case "pooler":
            yield from dense("bert.pooler", "bert.pooler.dense", hidden, hidden)
        case "masked_lm":
            name, size = "cls.predictions", config.vocab_size
            transform = f"{name}.transform"
            yield from dense(f"{part}.dense", f"{transform}.dense", hidden, hidden)
            yield from norm(f"{part}.layer_norm", f"{transform}.LayerNorm", hidden)
            output_bias = "cls/predictions/output_bias"
            yield Parameter(
                (part, "bias"), (size,), (size,), f"{name}.bias", output_bias
            )
        case "decoder":
            name, shape = "cls.predictions.decoder.weight", (config.vocab_size, hidden)
            yield Parameter((part, "embedding"), shape, shape, name)
        case "next_sentence":
            name = "cls.seq_relationship"
            yield from dense(part, name, hidden, 2, scope="cls/seq_relationship/")
        case "sequence_classification":
            yield from dense(part, "classifier", hidden, labels, scope="")
        case "token_classification":
            yield from dense(part, "classifier", hidden, labels)
        case "question_answering":
            yield from dense(part, "qa_outputs", hidden, 2, scope="cls/squad/")
        case "multiple_choice":
            yield from dense(part, "classifier", hidden, 1)
        case _:
            raise ValueError(part)


def _trunk(config: BertConfig) -> Iterator[Parameter]:
    for name, rows in (
        ("word_embeddings", config.vocab_size),
        ("position_embeddings", config.max_position_embeddings),
        ("token_type_embeddings", config.type_vocab_size),
    ):
        both = f"bert.embeddings.{name}"
        yield table(both, both, rows, config.hidden_size)
    name = "bert.embeddings.LayerNorm"
    yield from norm("bert.embeddings.layer_norm", name, config.hidden_size)
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = (config.num_attention_heads, config.head_dim)
    for index in range(config.num_hidden_layers):
        path, name = f"bert.encoder.layer_{index}", f"bert.encoder.layer.{index}"
        for which in ("query", "key", "value"):
            theirs = f"{name}.attention.self.{which}"
            yield from dense(f"{path}.attention.{which}", theirs, hidden, heads)
        for ours, theirs, inputs, outputs in (
            ("attention.output", "attention.output.dense", heads, hidden),
            ("intermediate", "intermediate.dense", hidden, inner),
            ("output", "output.dense", inner, hidden),
        ):
            yield from dense(f"{path}.{ours}", f"{name}.{theirs}", inputs, outputs)
        attention = f"{name}.attention.output.LayerNorm"
        yield from norm(f"{path}.attention_layer_norm", attention, hidden)
        yield from norm(f"{path}.layer_norm", f"{name}.output.LayerNorm", hidden)


def dense(
    path: str,
    name: str,
    inputs: int | Shape,
    outputs: int | Shape,
    *,
    bias: bool = True,
    fused: tuple[int, int] = (0, 1),
    conv: bool = False,
    scope: str | None = None,
) -> Iterator[Parameter]:
    """Yields a linear layer's kernel and bias; see `Parameter`.

    Args:
      path: ours, such as `bert.pooler`.
      name: theirs, without `.weight`.
      scope: of a head's `output_weights` and `output_bias` in Google's code.
    """
    inputs, outputs = (n if isinstance(n, tuple) else (n,) for n in (inputs, outputs))
    keys, flat = path.split("."), (math.prod(inputs), math.prod(outputs))
    googles = [f"{_google(name)}/{last}" for last in ("kernel", "bias")]
    if scope is not None:
        googles = [f"{scope}output_weights", f"{scope}output_bias"]
    for last, theirs, shape, own, google in (
        ("kernel", "weight", inputs + outputs, flat, googles[0]),
        ("bias", "bias", outputs, flat[1:], googles[1]),
    )[: 1 + bias]:
        both = f"{name}.{theirs}", google
        yield Parameter((*keys, last), shape, own, *both, fused, conv)


def norm(path: str, name: str, size: int, *, bias: bool = True) -> Iterator[Parameter]:
    """Yields a LayerNorm's scale and bias; arguments as of `dense`."""
    keys, google = path.split("."), _google(name)
    names = (("scale", "weight", "gamma"), ("bias", "bias", "beta"))
    for ours, theirs, googles in names[: 1 + bias]:
        both = f"{name}.{theirs}", f"{google}/{googles}"
        yield Parameter((*keys, ours), (size,), (size,), *both)


def table(path: str, name: str, rows: int, size: int) -> Parameter:
    """Returns the matrix of an embedding; arguments as of `dense`."""
    keys, shape = (*path.split("."), "embedding"), (rows, size)
    return Parameter(keys, shape, shape, f"{name}.weight", _google(name))


def _google(name: str) -> str:
    return re.sub(r"layer\.(\d+)", r"layer_\1", name).replace(".", "/")
