"""Long texts in overlapping windows, whose logits are combined (`task.windows`)."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def cut_windows(ids: list[int], room: int, overlap: int) -> list[list[int]]:
    """Cuts a text's tokens into windows, each with the last tokens of the one before.

    Args:
      ids: Tokens, without special ones. Without any there is one empty window.
      room: Tokens of a window.
      overlap: Tokens that two neighbors share.
    """
    step = room - overlap
    count = max(1, -(-(len(ids) - overlap) // step))
    return [ids[index * step : index * step + room] for index in range(count)]


def combine_logits(
    logits: Float[Array, "batch windows labels"],
    input_mask: Int[Array, "batch windows length"],
    how: str,
) -> Float[Array, "batch labels"]:
    """Returns the mean or the maximum over a text's windows, without empty ones.

    Args:
      how: mean or max.
    """
    is_real = input_mask.any(axis=-1)
    is_real = is_real.at[:, 0].set(True)[..., None]  # in an empty row of a batch, too
    if how == "max":
        return jnp.where(is_real, logits, -jnp.inf).max(axis=1)
    return jnp.where(is_real, logits, 0.0).sum(axis=1) / is_real.sum(axis=1)
