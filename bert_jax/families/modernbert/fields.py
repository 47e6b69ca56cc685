"""The fields that only a ModernBERT's configs have, or have otherwise.

The defaults are those of `transformers`' ModernBertConfig, whose names these are.
"""

import dataclasses
import functools

from bert_jax.config import fields
from bert_jax.config.field import COUNT, Field

_THETA = "[1, 1000000000000]"
# No parameter depends on it, so that the command line may have another value.
_free = functools.partial(Field, weights="default")


def _window(value: int) -> str | None:
    return "must be even, and at least 2" if value < 2 or value % 2 else None


FIELDS = {
    # The window of a local layer, in tokens: half of it to each side.
    "model.local_attention": Field(128, _window, weights="fixed"),
    # One layer in this many is global, from the first.
    "model.global_attn_every_n_layers": Field(3, COUNT, weights="fixed"),
    # Theta of the rotary positions: 160,000 in global layers once rows have 8,192
    # tokens.
    "model.global_rope_theta": _free(160_000.0, _THETA),
    "model.local_rope_theta": _free(10_000.0, _THETA),  # theta in local layers
    # The vectors that a classifier of texts reads: the first token's (cls), or all
    # (mean).
    "model.classifier_pooling": _free("cls", ("cls", "mean")),
    "model.max_position_embeddings": dataclasses.replace(
        fields.FIELDS["model.max_position_embeddings"], weights="default"
    ),
}
