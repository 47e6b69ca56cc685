"""Positions: rotary ones (Su et al. 2021, arXiv:2104.09864), not learned vectors.

    python -m bert_jax.main --config=examples/rotary.py

Queries and keys are turned by angles that grow with the position, so their product
depends on how far apart they are. Any attention compares them: einsum, a kernel, or a
custom one. In packed rows each sequence has its own positions.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.models.positions import Positions
from bert_jax.registry import POSITIONS

extends = "tiny"
NAME = "rotary"  # as other config files name it
BASE = 10_000.0

Heads = Float[Array, "batch length heads head_dim"]


def turned(
    config: BertConfig, queries: Heads, keys: Heads, ids: Int[Array, "#batch length"]
) -> tuple[Heads, Heads]:
    """Rotates as `Positions` describes: number i of a head together with i + half."""
    half, odd = divmod(config.head_dim, 2)
    if odd:
        raise UserError(
            f"config.model.positions=rotary: heads of {config.head_dim} numbers "
            "(config.model.hidden_size / num_attention_heads); it must be even"
        )
    angles = ids[..., None] * BASE ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]

    def turn(x: Heads) -> Heads:
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        both = first * cos - second * sin, second * cos + first * sin
        return jnp.concatenate(both, axis=-1).astype(x.dtype)

    return turn(queries), turn(keys)


POSITIONS[NAME] = Positions(rotate=turned)


def get_config(config: ConfigDict) -> ConfigDict:
    config.model.positions = NAME
    config.model.position_initializer = "normal"  # there is nothing to initialise
    return config
