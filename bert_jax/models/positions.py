"""Position encodings: `model.positions`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from bert_jax.models.config import BertConfig
from bert_jax.models.layers import Embedding


class Positions(NamedTuple):
    """A kind of position encoding. Either attribute may be None. `ids` are the tokens'
    positions in their sequence: in packed rows each sequence counts its own, and
    shifted positions begin later.

    Attributes:
      embedding: MODULE(config), whose `embed(length, ids)` the embeddings add: [batch,
        length, hidden], or without ids [length, hidden].
      rotate: (config, queries, keys, ids [batch or 1, length]) -> queries and keys as
        they are compared, [batch, length, heads, head_dim], with any attention.
    """

    embedding: Callable[[BertConfig], Any] | None = None
    rotate: Callable[..., tuple[Array, Array]] | None = None


class LearnedPositions(Embedding):
    """A vector for each position."""

    def embed(
        self, length: int, ids: Int[Array, "batch length"] | None
    ) -> Float[Array, "*batch length hidden"]:
        if ids is not None:
            return self(ids)
        if length > self.rows:
            raise ValueError(f"{length} tokens; max_position_embeddings={self.rows}")
        return self.table[:length]


LEARNED = Positions(
    lambda c: LearnedPositions(c, c.max_position_embeddings, "position")
)
