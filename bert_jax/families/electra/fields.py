"""The fields that only an ELECTRA's configs have."""

from bert_jax.config.field import SIZE, Field

FIELDS = {
    # Numbers in a row of the embeddings. A linear layer makes hidden_size of them.
    "model.embedding_size": Field(128, SIZE, weights="fixed"),
    # Width of the generator of task.objective=replaced_tokens, as a fraction of the
    # model's. Large and Small have 0.25, Base 1/3.
    "model.generator_hidden_size": Field(0.25, "(0, 1]", weights="default"),
}
