"""How a model knows where a token stands: `model.positions`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
from jaxtyping import Array, Float, Int

from bert_jax.models.config import BertConfig
from bert_jax.models.layers import Embedding
from bert_jax.registry import Registry


class Positions(NamedTuple):
    """A kind of positions. `ids` are those of tokens in their own sequence, from 0; in
    packed rows each sequence has its own, and shifted ones begin later.

    Attributes:
      added: MODULE(config), whose `at(length, ids)` gives the vectors that the
        embeddings add, [length, hidden] without ids, else [batch, length, hidden].
        None: nothing is added.
      turned: (config, queries, keys, ids) -> queries and keys as every attention of
        the model compares them, [batch, length, heads, head_dim]; ids [batch or 1,
        length]. None: as they are. An attention of your own finds the ids in `Seen`.
    """

    added: Callable[[BertConfig], nn.Module] | None = None
    turned: Callable[[BertConfig, Array, Array, Array], tuple[Array, Array]] | None = (
        None
    )


class Learnt(Embedding):
    """A vector for each position."""

    def at(
        self, length: int, ids: Int[Array, "batch length"] | None
    ) -> Float[Array, "*batch length hidden"]:
        if ids is not None:
            return self(ids)
        if length > self.rows:
            raise ValueError(
                f"{length} tokens, but max_position_embeddings={self.rows}"
            )
        return self.table[:length]


def learnt(config: BertConfig) -> Learnt:
    return Learnt(config, config.max_position_embeddings, "position")


# By name; your own config file can add to them (docs/extending.md).
POSITIONS = Registry({"learnt": Positions(added=learnt)})


def of(config: BertConfig) -> Any:
    """The `Positions` that a model has."""
    return POSITIONS.of("model.positions", config.positions)
