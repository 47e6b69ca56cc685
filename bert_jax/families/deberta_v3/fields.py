"""The fields that only a DeBERTa-v3's configs have."""

from bert_jax.config.field import Field

FIELDS = {
    "model.position_buckets": Field(
        256,
        "[2, 16777216]",
        fixed_by="weights",
        doc="Buckets of distances on each side of a token. Half of them are for "
        "one distance each, the others grow with it, up to "
        "max_position_embeddings.",
    ),
    "model.generator_layers": Field(
        0.5,
        "(0, 1]",
        fixed_by="weights_by_default",
        doc="Layers of the generator of task.objective=replaced_tokens, as a "
        "fraction of the model's. It is as wide.",
    ),
}
