"""The fields that only an ELECTRA's configs have."""

from bert_jax.config.field import SIZE, Field

FIELDS = {
    "model.embedding_size": Field(
        128,
        SIZE,
        fixed_by="weights",
        doc="Numbers in a row of the embeddings. A linear layer makes hidden_size "
        "of them.",
    ),
    "model.generator_hidden_size": Field(
        0.25,
        "(0, 1]",
        fixed_by="weights_by_default",
        doc="Width of the generator of task.objective=replaced_tokens, as a "
        "fraction of the model's. Large and Small have 0.25, Base 1/3.",
    ),
}
