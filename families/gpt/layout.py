"""Maps our parameters' names and axes to those of Hugging Face's GPT.

There query, key and value are one matrix (Conv1D), [inputs, outputs] as here; a linear
layer of a head is [outputs, inputs].
"""

import dataclasses
import math
from collections.abc import Collection, Iterator

import numpy as np

from bert_jax.convert import layout
from bert_jax.models.config import BertConfig

# Each architecture's heads with parameters, named like ours.
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "OpenAIGPTModel": (),
    "OpenAIGPTLMHeadModel": (),
    "OpenAIGPTForSequenceClassification": ("sequence_classification",),
    "OpenAIGPTDoubleHeadsModel": ("multiple_choice",),
}
# Ours, named like BERT's; `transformers` has no such classes for a GPT.
OURS: dict[str, tuple[str, ...]] = {
    "OpenAIGPTForTokenClassification": ("token_classification",),
    "OpenAIGPTForQuestionAnswering": ("question_answering",),
}
# All read the last token, and do so in `transformers`.
CAUSAL = tuple(ARCHITECTURES)
PREFIX = "transformer."
TABLE = f"{PREFIX}tokens_embed.weight"
_NORMS = {"attention_layer_norm": "ln_1", "layer_norm": "ln_2"}


@dataclasses.dataclass(frozen=True)
class _Part(layout.Parameter):
    """The parameter at `place` of the `places` that an array of theirs joins along its
    last axis; that array is not transposed."""

    place: int = 0
    places: int = 1

    def their_shape(self, dialect: str) -> tuple[int, ...]:
        return (*self.flat[:-1], self.places * self.flat[-1])

    def take(self, array: layout.Array, dialect: str) -> layout.Array:
        part = np.split(array, self.places, axis=-1)[self.place]
        return np.ascontiguousarray(part.reshape(self.shape))

    def give(self, array: layout.Array, dialect: str) -> layout.Array:
        return np.ascontiguousarray(array.reshape(self.flat))


def name_of(heads: Collection[str], causal: bool) -> str:
    """The architecture with these heads, besides the language model."""
    del causal  # every GPT is
    known = {frozenset(parts): name for name, parts in (ARCHITECTURES | OURS).items()}
    return known[frozenset(heads)]


def parameters(
    part: str, config: BertConfig, labels: int = 0
) -> Iterator[layout.Parameter]:
    """The parameters of a part: `bert` (the whole trunk, whose name is the same), or a
    head of ARCHITECTURES or OURS. What `transformers` has not has no name: the
    classifier's bias, and OURS.

    Args:
      labels: outputs of `sequence_classification` or `token_classification`.
    """
    hidden = config.hidden_size
    match part:
        case "bert":
            path, positions = ("bert", "embeddings"), config.max_position_embeddings
            for name, saved_name, rows in (
                ("word_embeddings", "tokens_embed", config.vocab_size),
                ("position_embeddings", "positions_embed", positions),
            ):
                yield layout.Parameter(
                    (*path, name, "embedding"),
                    (rows, hidden),
                    (rows, hidden),
                    f"{PREFIX}{saved_name}.weight",
                )
            for index in range(config.num_hidden_layers):
                yield from _layer(index, config)
        case "sequence_classification":
            shape = (hidden, labels)
            yield layout.Parameter((part, "kernel"), shape, shape, "score.weight")
            yield layout.Parameter((part, "bias"), (labels,), (labels,), "")
        case "multiple_choice":
            name, shape = "multiple_choice_head.summary", (hidden, 1)
            yield layout.Parameter((part, "kernel"), shape, shape, f"{name}.weight")
            yield layout.Parameter((part, "bias"), (1,), (1,), f"{name}.bias")
        case "token_classification" | "question_answering":
            size = 2 if part == "question_answering" else labels
            yield layout.Parameter((part, "kernel"), (hidden, size), (hidden, size), "")
            yield layout.Parameter((part, "bias"), (size,), (size,), "")
        case _:
            raise ValueError(part)


def _layer(index: int, config: BertConfig) -> Iterator[layout.Parameter]:
    path, name = ("bert", "encoder", f"layer_{index}"), f"{PREFIX}h.{index}"
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = (config.num_attention_heads, config.head_dim)
    for place, which in enumerate(("query", "key", "value")):
        destination = (*path, "attention", which)
        yield from _conv(destination, f"{name}.attn.c_attn", (hidden,), heads, place, 3)
    yield from _conv(
        (*path, "attention", "output"), f"{name}.attn.c_proj", heads, (hidden,)
    )
    yield from _conv((*path, "intermediate"), f"{name}.mlp.c_fc", (hidden,), (inner,))
    yield from _conv((*path, "output"), f"{name}.mlp.c_proj", (inner,), (hidden,))
    for ours, saved_name in _NORMS.items():
        for last, word in (("scale", "weight"), ("bias", "bias")):
            yield layout.Parameter(
                (*path, ours, last), (hidden,), (hidden,), f"{name}.{saved_name}.{word}"
            )


def _conv(
    path: tuple[str, ...],
    name: str,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    place: int = 0,
    places: int = 1,
) -> Iterator[_Part]:
    flat = (math.prod(inputs), math.prod(outputs))
    kernel, bias = (*path, "kernel"), (*path, "bias")
    yield _Part(kernel, inputs + outputs, flat, f"{name}.weight", "", place, places)
    yield _Part(bias, outputs, flat[1:], f"{name}.bias", "", place, places)
