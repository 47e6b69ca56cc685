"""Rotary positions (Su et al. 2021) of global and of local layers."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.models.config import BertConfig
from bert_jax.models.positions import Positions

Heads = Float[Array, "batch length heads head_dim"]


def turned(
    field: str,
    config: BertConfig,
    queries: Heads,
    keys: Heads,
    ids: Int[Array, "#batch length"],
) -> tuple[Heads, Heads]:
    """See `Positions`: number i of a head is turned together with number i + half.

    Args:
      field: which of the config's two bases.
    """
    half = config.head_dim // 2
    # Rounded once: an angle is up to 8,192 times as inexact as its speed.
    speeds = config.field(field) ** (-np.arange(half, dtype=np.float64) / half)
    angles = ids[..., None] * speeds.astype(np.float32)
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]

    def turn(x: Heads) -> Heads:
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        both = first * cos - second * sin, second * cos + first * sin
        return jnp.concatenate(both, axis=-1).astype(x.dtype)

    return turn(queries), turn(keys)


GLOBAL = Positions(turned=functools.partial(turned, "global_rope_theta"))
LOCAL = Positions(turned=functools.partial(turned, "local_rope_theta"))
