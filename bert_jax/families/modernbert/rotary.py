"""Rotary positions (Su et al. 2021, arXiv:2104.09864): queries and keys are turned by
angles that grow with the position, so their product depends on how far apart they
are."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.models.config import BertConfig
from bert_jax.models.positions import Positions

Heads = Float[Array, "batch length heads head_dim"]


def rotary(field: str) -> Positions:
    """Positions that turn number i of a head together with number i + half.

    Args:
      field: Name of a field of the family in `config.model`: the base (theta). Number i
        turns by base ** (-i / half) a position.
    """

    def rotate_heads(
        config: BertConfig,
        queries: Heads,
        keys: Heads,
        ids: Int[Array, "#batch length"],
    ) -> tuple[Heads, Heads]:
        half = config.head_dim // 2
        # Rounded once: an angle is as many times as inexact as its position is far.
        speeds = config.field(field) ** (-np.arange(half, dtype=np.float64) / half)
        angles = ids[..., None] * speeds.astype(np.float32)
        cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]

        def turn(x: Heads) -> Heads:
            first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
            both = first * cos - second * sin, second * cos + first * sin
            return jnp.concatenate(both, axis=-1).astype(x.dtype)

        return turn(queries), turn(keys)

    return Positions(rotate=rotate_heads)
