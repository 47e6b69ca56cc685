"""A function of (params, batch), compiled to answer rows."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.data.rows import BatchSize
from bert_jax.tasks.task import ApplyFn, Batch, Outputs, PredictFn
from bert_jax.training import sharding

# On a CPU a batch has at most so many rows, and is computed in pieces: a few rows cost
# only their own.
_ROWS, _FEW = 16, 4

Waits = Callable[[], Outputs]


def batch_size(mesh: Mesh, rows: int, width: int) -> BatchSize:
    """The size of batches of about so many rows on a mesh; smaller on one CPU.

    Args:
      width: of a token's vector.
    """
    rows = sharding.batch_multiple(mesh, rows)
    on_cpu = mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"
    return BatchSize(min(rows, _ROWS), width) if on_cpu else BatchSize(rows)


def trace_outputs(
    function: Callable, mesh: Mesh, params: Any, batch: Mapping[str, Any]
) -> jax.stages.Traced:
    """A function of (params, batch) on a mesh, as evaluation and prediction run it."""
    jitted = jax.jit(function, out_shardings=sharding.replicated(mesh))
    with sharding.activate(mesh):
        return jitted.trace(params, batch)


def compile_predict(
    function: ApplyFn, params: Any, mesh: Mesh, size: BatchSize
) -> PredictFn:
    """Compiles a function of (params, batch); returns one of a batch of up to `size`
    rows."""
    submit = async_predict(function, params, mesh, size)
    return lambda rows: submit(rows)()


def async_predict(
    function: ApplyFn, params: Any, mesh: Mesh, size: BatchSize
) -> Callable[[Batch], Waits]:
    """As `compile_predict`, but starts the computation; the function that it returns
    waits for it."""
    compiled: dict[tuple, jax.stages.Compiled] = {}  # a call needs no active mesh
    local = sharding.local_rows(mesh, size.rows)

    def start(rows: Batch, of: int) -> Waits:
        """Starts a computation of `of` rows, for up to as many."""
        count = len(rows["input_ids"])
        places = np.minimum(np.arange(of), count - 1)  # repeats the last row
        batch: Any = {name: column[places] for name, column in rows.items()}
        if not size.width:
            batch = sharding.place_batch(
                {n: x[local] for n, x in batch.items()}, mesh, of
            )
        shapes = tuple((name, column.shape) for name, column in batch.items())
        if shapes not in compiled:
            traced = trace_outputs(function, mesh, params, batch)
            compiled[shapes] = traced.lower().compile()
        outputs = compiled[shapes](params, batch)
        return lambda: {
            name: column[:count] for name, column in jax.device_get(outputs).items()
        }

    def submit(rows: Batch) -> Waits:
        if not size.width:
            return start(rows, size.rows)
        count, *shape = rows["input_ids"].shape
        waits = [
            start({name: column[part] for name, column in rows.items()}, of)
            for part, of in pieces(count, size.at(int(np.prod(shape))))
        ]
        return lambda: jax.tree.map(
            lambda *parts: np.concatenate(parts), *(wait() for wait in waits)
        )

    return submit


def piece_sizes(whole: int) -> list[int]:
    """Returns the numbers of rows of a piece, of which the largest has `whole`."""
    return sorted({1, min(_FEW, whole), whole})


def pieces(count: int, whole: int) -> Iterator[tuple[slice, int]]:
    """Splits rows into pieces of at most three sizes, so that few programs are
    compiled.

    Args:
      whole: rows of the largest piece.

    Yields:
      The rows of a piece, and the rows that are computed for it: not many more.
    """
    sizes = piece_sizes(whole)
    start = 0
    while start < count:
        left = count - start
        of = next((n for n in sizes if 3 * n <= 4 * left and left <= n), 0)
        of = of or max(n for n in sizes if n <= left)
        yield slice(start, start + of), of
        start += of
