"""The fields that only a ModernBERT's configs have, or have otherwise.

The defaults are those of `transformers`' ModernBertConfig, whose names these are.
"""

import dataclasses

from bert_jax.config import fields
from bert_jax.config.field import COUNT, Field

_THETA = "[1, 1000000000000]"


def _window(value: int) -> str | None:
    return "must be even, and at least 2" if value < 2 or value % 2 else None


FIELDS = {
    "model.local_attention": Field(
        128,
        _window,
        fixed_by="weights",
        doc="Window of a local layer, in tokens: half of it to each side",
    ),
    "model.global_attn_every_n_layers": Field(
        3,
        COUNT,
        fixed_by="weights",
        doc="Distance of a global layer from the next one, from the first layer on",
    ),
    "model.global_rope_theta": Field(
        160_000.0,
        _THETA,
        fixed_by="weights_by_default",
        doc="Theta of the rotary positions: 160,000 in global layers once rows "
        "have 8,192 tokens.",
    ),
    "model.local_rope_theta": Field(
        10_000.0, _THETA, fixed_by="weights_by_default", doc="Theta of local layers"
    ),
    "model.classifier_pooling": Field(
        "cls",
        ("cls", "mean"),
        fixed_by="weights_by_default",
        doc="Vectors that a classifier of texts reads: the first token's (cls), "
        "or all (mean)",
    ),
    "model.max_position_embeddings": dataclasses.replace(
        fields.FIELDS["model.max_position_embeddings"], fixed_by="weights_by_default"
    ),
}
