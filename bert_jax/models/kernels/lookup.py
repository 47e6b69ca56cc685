"""Lookups on a GPU, whose gradients are summed in one order, and fast.

XLA adds rows to a table in any order. If forced to use one order, it sorts every
element separately: 23 of 77 ms of a step of Base on an H100
(experiments/results/gpu.txt).
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.models.kernels.on_mesh import IDS, on_mesh

_BLOCK = 128  # sorted vectors that a matrix product sums


@jax.custom_vjp
def lookup_rows(
    table: Float[Array, "rows hidden"], ids: Int[Array, "batch length"]
) -> Float[Array, "batch length hidden"]:
    """Returns the rows of the table that `ids` name. All ids are less than `rows`."""
    return jnp.take(table, ids, axis=0)


def _forward(table: Array, ids: Array) -> tuple[Array, tuple[Array, Array]]:
    return lookup_rows(table, ids), (table, ids)


def _backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    table, ids = kept

    # Each device sums its own rows of the batch. XLA adds the sums.
    sums = on_mesh(
        lambda ids, gradient: sum_by_row(len(table), ids, gradient)[None],
        (IDS, IDS),
        IDS,
    )(ids, gradient)
    return sums.sum(axis=0).astype(table.dtype), None


lookup_rows.defvjp(_forward, _backward)


def sum_by_row(
    rows: int, ids: Int[Array, "..."], vectors: Float[Array, "... hidden"]
) -> Float[Array, "rows hidden"]:
    """Sums the vectors of each id from 0 to `rows`, in float32.

    After sorting, the vectors of an id are adjacent, and the last of them has their
    running sum.
    """
    ids, vectors = ids.reshape(-1), vectors.reshape(-1, vectors.shape[-1])
    order = jnp.argsort(ids)
    ids = ids[order]
    sums = _running(ids, vectors[order].astype(jnp.float32))
    ends = jnp.searchsorted(ids, jnp.arange(rows), "right", method="scan_unrolled")
    last = jnp.maximum(ends - 1, 0)
    return jnp.where((ids[last] == jnp.arange(rows))[:, None], sums[last], 0)


def _running(
    ids: Int[Array, "n"], vectors: Float[Array, "n hidden"]
) -> Float[Array, "n hidden"]:
    """Returns, for each vector, the running sum of the vectors with its id. The ids are
    sorted.

    A product with a matrix of zeros and ones sums within blocks. The earlier blocks'
    sum of a block's first id is the running sum of the blocks' last vectors.
    """
    count, padding = len(ids), -len(ids) % _BLOCK
    blocks = jnp.pad(ids, (0, padding), mode="edge").reshape(-1, _BLOCK)
    vectors = jnp.pad(vectors, ((0, padding), (0, 0)))
    place = jnp.arange(_BLOCK)
    chosen = blocks[:, :, None] == blocks[:, None, :]
    chosen &= place[:, None] >= place
    sums = jnp.einsum(
        "bij,bjh->bih",
        chosen.astype(jnp.float32),
        vectors.reshape(*blocks.shape, -1),
        precision="highest",  # nothing is rounded before it is added
    )
    if len(blocks) > 1:
        before = _running(blocks[:, -1], sums[:, -1])[:-1]
        goes_on = blocks[1:] == blocks[:-1, -1:]
        more = jnp.where(goes_on[:, :, None], before[:, None], 0)
        sums = jnp.concatenate([sums[:1], sums[1:] + more])
    return sums.reshape(-1, vectors.shape[1])[:count]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def gather_by_blocks(
    length: int,
    x: Float[Array, "batch length ..."],
    positions: Int[Array, "batch positions ..."],
) -> Float[Array, "batch positions ..."]:
    """Gathers x at `positions` in each row of `length`. `positions` has as many axes as
    x."""
    del length
    return jnp.take_along_axis(x, positions, axis=1)


def _gather_forward(length: int, x: Array, positions: Array) -> tuple[Array, Array]:
    return gather_by_blocks(length, x, positions), positions


def _gather_backward(
    length: int, positions: Array, gradient: Array
) -> tuple[Array, None]:
    """Multiplies by a matrix of zeros and ones."""
    positions = positions.reshape(*positions.shape[:2], 1)
    chosen = (positions == jnp.arange(length)).astype(gradient.dtype)
    return jnp.einsum("bpl,bp...->bl...", chosen, gradient, precision="highest"), None


gather_by_blocks.defvjp(_gather_forward, _gather_backward)
