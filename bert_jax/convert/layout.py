"""Maps our parameters' names and axes to Google's and Hugging Face's.

A kernel is [inputs..., outputs...] here, [inputs, outputs] in Google's checkpoints and
[outputs, inputs] in PyTorch's. The names are from modeling.py, run_classifier.py and
run_squad.py (google-research/bert) and from `transformers`.
"""

import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float32

from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig

Array = Float32[np.ndarray, "..."]

# Each architecture's parts besides `bert`, named like their parameters; only `pooler`
# is inside `bert`.
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "BertModel": ("pooler",),
    "BertForPreTraining": ("pooler", "masked_lm", "next_sentence"),
    "BertForMaskedLM": ("masked_lm",),
    "BertLMHeadModel": ("masked_lm",),  # left to right
    "BertForNextSentencePrediction": ("pooler", "next_sentence"),
    "BertForSequenceClassification": ("pooler", "sequence_classification"),
    "BertForTokenClassification": ("token_classification",),
    "BertForQuestionAnswering": ("question_answering",),
    "BertForMultipleChoice": ("pooler", "multiple_choice"),
}
# Those that compute the same here and in `transformers` where attention is causal: the
# pooler reads [CLS] there, which has seen nothing, and the last [SEP] here.
CAUSAL = (
    *("BertForMaskedLM", "BertLMHeadModel"),
    *("BertForTokenClassification", "BertForQuestionAnswering"),
)
# Ours that `transformers` does not have.
OURS: dict[str, tuple[str, ...]] = {}
# A text classifier's `task.kind` -> config.json's problem_type.
PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
# Heads with unique names, so that any file may have them.
SHARED_HEADS = ("masked_lm", "next_sentence")
_OUTPUT = ("output_weights", "output_bias")  # of a linear head in Google's code
# Heads with one output per label.
LABELLED_HEADS = ("sequence_classification", "token_classification")


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model that was read."""

    config: BertConfig
    params: dict[str, Any]  # nested, float32 arrays, layers not stacked
    architecture: str  # one of ARCHITECTURES, besides a `bilstm`
    labels: tuple[str, ...] = ()  # names of a classifier's outputs
    problem_type: str | None = None
    left_over: tuple[str, ...] = ()  # names in the file that no part here uses
    # What was learned besides weights, such as SQuAD's threshold; JSON.
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that the parameters have."""
        heads = tuple(k for k in self.params if k not in ("bert", "decoder", "bilstm"))
        return (*FAMILIES[self.config.architecture].bare_heads, *heads)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: its path and shape here, and its names elsewhere."""

    path: tuple[str, ...]
    shape: tuple[int, ...]
    flat: tuple[int, ...]  # as a vector, or as a matrix [inputs, outputs]
    huggingface: str
    google: str = ""  # empty: Google's code has no such parameter

    def of(self, params: Mapping[str, Any]) -> Any:
        """Its value among a model's, an array of NumPy or of JAX."""
        value: Any = params
        for key in self.path:
            value = value[key]
        return value

    def name(self, dialect: str) -> str:
        return self.google if dialect == "google" else self.huggingface

    def their_shape(self, dialect: str) -> tuple[int, ...]:
        return self.flat[::-1] if self._transposed(dialect) else self.flat

    def take(self, array: Array, dialect: str) -> Array:
        """Converts their array to ours."""
        if self._transposed(dialect):
            array = array.T
        return np.ascontiguousarray(array.reshape(self.shape))

    def give(self, array: Array, dialect: str) -> Array:
        """Converts our array to theirs."""
        array = array.reshape(self.flat)
        return np.ascontiguousarray(array.T if self._transposed(dialect) else array)

    def _transposed(self, dialect: str) -> bool:
        if dialect == "google":  # multiplied with transpose_b=True there
            return self.google.endswith("output_weights")
        return self.path[-1] == "kernel"


def parameters(part: str, config: BertConfig, labels: int = 0) -> Iterator[Parameter]:
    """The parameters of a part: `bert` (without its pooler), `pooler`, `decoder` (an
    output matrix that is not the embeddings'), `bilstm`, or a head of ARCHITECTURES.

    Args:
      labels: outputs of LABELLED_HEADS.
    """
    hidden = (config.hidden_size,)
    match part:
        case "bert":
            yield from _embeddings(config)
            for index in range(config.num_hidden_layers):
                yield from _layer(index, config)
        case "pooler":
            yield from _dense(("bert", "pooler"), "bert.pooler.dense", hidden, hidden)
        case "masked_lm":
            name = "cls.predictions"
            transform = f"{name}.transform"
            yield from _dense((part, "dense"), f"{transform}.dense", hidden, hidden)
            yield from _layer_norm((part, "layer_norm"), transform, config)
            vocab, output_bias = (config.vocab_size,), "cls/predictions/output_bias"
            path = (part, "bias")
            yield Parameter(path, vocab, vocab, f"{name}.bias", output_bias)
        case "decoder":
            shape = (config.vocab_size, config.hidden_size)
            name = "cls.predictions.decoder.weight"
            yield Parameter((part, "embedding"), shape, shape, name)
        case "bilstm":
            yield from _bilstm(part, config)
        case "next_sentence":
            name = "cls.seq_relationship"
            yield from _output(part, name, hidden, 2, "cls/seq_relationship/")
        case "sequence_classification":
            yield from _output(part, "classifier", hidden, labels, "")
        case "token_classification":
            yield from _output(part, "classifier", hidden, labels, None)
        case "question_answering":
            yield from _output(part, "qa_outputs", hidden, 2, "cls/squad/")
        case "multiple_choice":
            yield from _output(part, "classifier", hidden, 1, None)
        case _:
            raise ValueError(part)


def parts_present(
    names: Collection[str], config: BertConfig, architecture: str, dialect: str
) -> list[str]:
    """The architecture's parts, plus the pooler and shared heads if present.

    BertModel needs no pooler: it may be untrained and left out.
    """
    parts = [] if architecture == "BertModel" else list(ARCHITECTURES[architecture])
    for part in ("pooler", *SHARED_HEADS):
        present = (p.name(dialect) in names for p in parameters(part, config))
        if part not in parts and any(present):
            parts.append(part)
    return parts


def name_of(heads: Collection[str], causal: bool) -> str:
    """The architecture with these heads."""
    if causal and set(heads) == {"masked_lm"}:
        return "BertLMHeadModel"
    for name, parts in ARCHITECTURES.items():
        if set(parts) - {"pooler"} == set(heads):
            return name
    raise UserError(f"a model with the heads {', '.join(sorted(heads))} has no name")


def default_labels(number: int) -> tuple[str, ...]:
    """`transformers`' names for unnamed outputs."""
    return tuple(f"LABEL_{index}" for index in range(number))


def all_of(architecture: str, parts: Collection[str]) -> str:
    """The architecture that keeps all parts found.

    Files of BertForMaskedLM often have everything from pre-training.
    """
    whole = "BertForPreTraining"
    if set(ARCHITECTURES[whole]) <= set(parts) and not set(parts) - set(
        ARCHITECTURES[whole]
    ):
        return whole
    return architecture


def _embeddings(config: BertConfig) -> Iterator[Parameter]:
    for name, rows in (
        ("word_embeddings", config.vocab_size),
        ("position_embeddings", config.max_position_embeddings),
        ("token_type_embeddings", config.type_vocab_size),
    ):
        shape = (rows, config.hidden_size)
        path = ("bert", "embeddings", name, "embedding")
        prefix = f"bert.embeddings.{name}"
        yield Parameter(path, shape, shape, f"{prefix}.weight", _google(prefix))
    yield from _layer_norm(
        ("bert", "embeddings", "layer_norm"), "bert.embeddings", config
    )


def _layer(index: int, config: BertConfig) -> Iterator[Parameter]:
    path, name = ("bert", "encoder", f"layer_{index}"), f"bert.encoder.layer.{index}"
    hidden, inner = (config.hidden_size,), (config.intermediate_size,)
    heads = (config.num_attention_heads, config.head_dim)
    attention = f"{name}.attention"
    for which in ("query", "key", "value"):
        place = (*path, "attention", which)
        yield from _dense(place, f"{attention}.self.{which}", hidden, heads)
    output = (*path, "attention", "output")
    yield from _dense(output, f"{attention}.output.dense", heads, hidden)
    norm = (*path, "attention_layer_norm")
    yield from _layer_norm(norm, f"{attention}.output", config)
    middle = (*path, "intermediate")
    yield from _dense(middle, f"{name}.intermediate.dense", hidden, inner)
    yield from _dense((*path, "output"), f"{name}.output.dense", inner, hidden)
    yield from _layer_norm((*path, "layer_norm"), f"{name}.output", config)


def _dense(
    path: tuple[str, ...], name: str, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> Iterator[Parameter]:
    flat, google = (math.prod(inputs), math.prod(outputs)), _google(name)
    kernel, bias = (*path, "kernel"), (*path, "bias")
    yield Parameter(
        kernel, inputs + outputs, flat, f"{name}.weight", f"{google}/kernel"
    )
    yield Parameter(bias, outputs, flat[1:], f"{name}.bias", f"{google}/bias")


def _layer_norm(
    path: tuple[str, ...], name: str, config: BertConfig
) -> Iterator[Parameter]:
    shape, name = (config.hidden_size,), f"{name}.LayerNorm"
    google = _google(name)
    scale, bias = (*path, "scale"), (*path, "bias")
    yield Parameter(scale, shape, shape, f"{name}.weight", f"{google}/gamma")
    yield Parameter(bias, shape, shape, f"{name}.bias", f"{google}/beta")


def _output(
    part: str, name: str, hidden: tuple[int], outputs: int, scope: str | None
) -> Iterator[Parameter]:
    """A head of one linear layer; `output_weights` under `scope` in Google's code."""
    names = ["" if scope is None else scope + last for last in _OUTPUT]
    shape = (*hidden, outputs)
    yield Parameter((part, "kernel"), shape, shape, f"{name}.weight", names[0])
    yield Parameter((part, "bias"), shape[1:], shape[1:], f"{name}.bias", names[1])


def _bilstm(part: str, config: BertConfig) -> Iterator[Parameter]:
    """`models.lstm.BiLstm`, which neither Google nor Hugging Face have."""
    inputs, size = config.hidden_size, config.hidden_size // 2
    for name, shape in (
        ("kernel", (2, inputs, 4, size)),
        ("recurrent_kernel", (2, size, 4, size)),
        ("bias", (2, 4, size)),
    ):
        yield Parameter((part, name), shape, shape, "")


def _google(name: str) -> str:
    return re.sub(r"layer\.(\d+)", r"layer_\1", name).replace(".", "/")
