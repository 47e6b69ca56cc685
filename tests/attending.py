"""Inputs and outputs of attention."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.attention import AttentionMask


def values(shape: tuple[int, ...], dtype: str) -> list[jax.Array]:
    """Draws query, keys and values, and the gradient of the output."""
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), dtype) for _ in range(4)]


def sees(kind: str, batch: int, length: int) -> AttentionMask:
    """Returns the attention mask of packed rows, or of padded ones."""
    rng = np.random.default_rng(1)
    if kind == "packed":
        ids = jnp.asarray(np.sort(rng.integers(0, 4, (batch, length)), axis=1))
        return AttentionMask(ids.astype(jnp.int32), ids.astype(jnp.int32))
    ends = rng.integers(1, length + 1, (batch, 1))
    return AttentionMask.from_input_mask(
        jnp.asarray(np.arange(length) < ends, jnp.int32)
    )


def outputs_and_gradients(
    attend, query, keys, value, gradient, seen, rate, causal=False
):
    """Computes both. `attend` returns only the mixed values."""
    key = jax.random.key(3)
    output, pull = jax.vjp(
        lambda *three: attend(*three, seen, rate, key, causal), query, keys, value
    )
    return output, *pull(gradient)
