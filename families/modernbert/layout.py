"""Maps our parameters' names and axes to those of Hugging Face's ModernBERT, where
query, key and value are one matrix, as are the two halves of a GeGLU."""

import dataclasses
import math
from collections.abc import Collection, Iterator

import numpy as np

from bert_jax.convert import layout
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig

# As in convert.layout.
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "ModernBertModel": (),
    "ModernBertForMaskedLM": ("masked_lm",),
    "ModernBertForSequenceClassification": ("sequence_classification",),
    "ModernBertForTokenClassification": ("token_classification",),
    "ModernBertForQuestionAnswering": ("question_answering",),
    "ModernBertForMultipleChoice": ("multiple_choice",),
}
OURS: dict[str, tuple[str, ...]] = {}
CAUSAL: tuple[str, ...] = ()
PREFIX = "model."


@dataclasses.dataclass(frozen=True)
class _Part(layout.Parameter):
    """The kernel at `place` of the `places` that a matrix of theirs joins."""

    place: int = 0
    places: int = 1

    def their_shape(self, dialect: str) -> tuple[int, ...]:
        outputs, inputs = super().their_shape(dialect)
        return (self.places * outputs, inputs)

    def take(self, array: layout.Array, dialect: str) -> layout.Array:
        return super().take(np.split(array, self.places)[self.place], dialect)


def name_of(heads: Collection[str], causal: bool) -> str:
    """The architecture with these heads."""
    del causal  # no ModernBERT is
    for name, parts in ARCHITECTURES.items():
        if set(parts) == set(heads):
            return name
    raise UserError(f"a model with the heads {', '.join(sorted(heads))} has no name")


def parameters(
    part: str, config: BertConfig, labels: int = 0
) -> Iterator[layout.Parameter]:
    """The parameters of `bert` or of a head (with `labels`), with what all read."""
    hidden = config.hidden_size
    if part == "bert":
        yield from _trunk(config)
        return
    yield _kernel(("bert", "head", "dense"), "head.dense", (hidden,), (hidden,))
    yield _norm(("bert", "head", "layer_norm"), "head.norm", config)
    name, known = "classifier", {"question_answering": 2, "multiple_choice": 1}
    if part == "masked_lm":
        name, labels = "decoder", config.vocab_size
    outputs = (known.get(part, labels),)
    if part != "masked_lm":
        yield _kernel((part,), name, (hidden,), outputs)
    yield layout.Parameter((part, "bias"), outputs, outputs, f"{name}.bias")


def _trunk(config: BertConfig) -> Iterator[layout.Parameter]:
    path, shape = ("bert", "embeddings"), (config.vocab_size, config.hidden_size)
    name, table = f"{PREFIX}embeddings", (*path, "word_embeddings", "embedding")
    yield layout.Parameter(table, shape, shape, f"{name}.tok_embeddings.weight")
    yield _norm((*path, "layer_norm"), f"{name}.norm", config)
    for index in range(config.num_hidden_layers):
        yield from _layer(index, config)
    yield _norm(("bert", "encoder", "final_layer_norm"), f"{PREFIX}final_norm", config)


def _layer(index: int, config: BertConfig) -> Iterator[layout.Parameter]:
    path, name = ("bert", "encoder", f"layer_{index}"), f"{PREFIX}layers.{index}"
    hidden, inner = (config.hidden_size,), config.intermediate_size
    heads = (config.num_attention_heads, config.head_dim)
    for place, which in enumerate(("query", "key", "value")):
        inside = (*path, "attention", which)
        yield _kernel(inside, f"{name}.attn.Wqkv", hidden, heads, place, 3)
    yield _kernel((*path, "attention", "output"), f"{name}.attn.Wo", heads, hidden)
    yield _kernel((*path, "intermediate"), f"{name}.mlp.Wi", hidden, (2, inner))
    yield _kernel((*path, "output"), f"{name}.mlp.Wo", (inner,), hidden)
    if index:
        yield _norm((*path, "attention_layer_norm"), f"{name}.attn_norm", config)
    yield _norm((*path, "layer_norm"), f"{name}.mlp_norm", config)


def _kernel(
    path: tuple[str, ...],
    name: str,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    *part: int,
) -> _Part:
    flat, kernel = (math.prod(inputs), math.prod(outputs)), (*path, "kernel")
    return _Part(kernel, inputs + outputs, flat, f"{name}.weight", "", *part)


def _norm(path: tuple[str, ...], name: str, config: BertConfig) -> layout.Parameter:
    shape = (config.hidden_size,)
    return layout.Parameter((*path, "scale"), shape, shape, f"{name}.weight")
