"""How a model knows where a token stands: `model.positions`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from bert_jax.models.config import BertConfig
from bert_jax.models.layers import Embedding
from bert_jax.registry import POSITIONS


class Positions(NamedTuple):
    """A kind of positions; None: it does not do this. `ids` are those of the tokens in
    their own sequence: in packed rows each has its own, and shifted ones begin later.

    Attributes:
      added: MODULE(config), whose `at(length, ids)` the embeddings add: [batch, length,
        hidden], or without ids [length, hidden].
      turned: (config, queries, keys, ids [batch or 1, length]) -> queries and keys as
        they are compared, [batch, length, heads, head_dim], in whatever attention.
    """

    added: Callable[[BertConfig], Any] | None = None
    turned: Callable[..., tuple[Array, Array]] | None = None


class Learnt(Embedding):
    """A vector for each position."""

    def at(
        self, length: int, ids: Int[Array, "batch length"] | None
    ) -> Float[Array, "*batch length hidden"]:
        if ids is not None:
            return self(ids)
        if length > self.rows:
            raise ValueError(f"{length} tokens; max_position_embeddings={self.rows}")
        return self.table[:length]


LEARNT = Positions(lambda c: Learnt(c, c.max_position_embeddings, "position"))


def of(config: BertConfig) -> Any:
    """The model's `Positions`."""
    return POSITIONS.of(config.positions)
