"""Word embeddings that start as counted vectors (data/word_vectors.py)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from bert_jax.data.run_data import RunData
from bert_jax.errors import UserError


def filled(params: Any, data: RunData, config: ConfigDict) -> Any:
    """Puts the vectors into the embedding matrix, and each piece's log frequency into
    the output bias of the masked LM, which then begins as the unigrams.

    Vectors are as long as rows of normal values with `initializer_range`. Pieces that
    the training text does not have keep their random vector.

    Args:
      params: of BertForPreTraining, on the devices; maybe of several seeds.
      config: the whole config; unless it asks for these vectors, nothing is changed.
    """
    if not data.counts_words:
        return params
    if "masked_lm" not in params:
        raise UserError(
            f"config.task.word_initializer=counted: the model of config.task.objective="
            f"{config.task.objective} has no masked LM of BERT's; set it normal"
        )
    counts = data.of(config.corpus.max_seq_length).token_counts() + 1
    length = config.model.initializer_range * config.model.hidden_size**0.5
    vectors = length * data.word_vectors()
    embeddings = params["bert"]["embeddings"]["word_embeddings"]
    head = params["masked_lm"]
    rows = head["bias"].shape[-1]
    spare = rows - len(vectors)  # rows that no piece has
    bias = np.log(np.pad(counts, (0, spare), constant_values=1) / counts.sum())
    seen = np.pad(vectors.any(axis=1), (0, spare))[:, None]
    vectors = np.pad(vectors, ((0, spare), (0, 0)))
    embedding = _placed(embeddings["embedding"], vectors, seen)
    bias = _placed(head["bias"], bias, np.full(rows, True))
    word_embeddings = {**embeddings, "embedding": embedding}
    inner = {**params["bert"]["embeddings"], "word_embeddings": word_embeddings}
    bert = {**params["bert"], "embeddings": inner}
    return {**params, "bert": bert, "masked_lm": {**head, "bias": bias}}


def _placed(
    random: Float[Array, "..."], values: np.ndarray, where: np.ndarray
) -> Float[Array, "..."]:
    """The values `where` they are to be, on the devices of the random ones."""

    def choose(random: Array, values: Array, where: Array) -> Array:
        return jnp.where(where, values, random)

    # As arguments: constants of this size would be compiled into the program.
    function = jax.jit(choose, out_shardings=random.sharding, donate_argnums=0)
    return function(random, values.astype(np.float32), where)
