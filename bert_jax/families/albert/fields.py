"""The field that only an ALBERT's configs have."""

from bert_jax.config.field import SIZE, Field

FIELDS = {
    "model.embedding_size": Field(
        128,
        SIZE,
        fixed_by="weights",
        doc="Numbers in a row of the embeddings. A linear layer makes hidden_size "
        "of them.",
    ),
}
