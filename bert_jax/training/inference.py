"""A function of (params, batch), compiled to answer rows."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.tasks.task import ApplyFn, Batch, Outputs, PredictFn
from bert_jax.training import sharding


def compile_predict(function: ApplyFn, params: Any, mesh: Mesh, size: int) -> PredictFn:
    """Compiles a function of (params, batch); returns one of a batch of up to `size`
    rows."""
    submit = async_predict(function, params, mesh, size)
    return lambda rows: submit(rows)()


def async_predict(
    function: ApplyFn, params: Any, mesh: Mesh, size: int
) -> Callable[[Batch], Callable[[], Outputs]]:
    """As `compile_predict`, but starts the computation; the function that it returns
    waits for it."""
    run = jax.jit(function, out_shardings=sharding.replicated(mesh))
    own = sharding.local_rows(mesh, size)

    def submit(rows: Batch) -> Callable[[], Outputs]:
        count = len(rows["input_ids"])
        padded = {
            name: np.pad(
                column, [(0, size - count)] + [(0, 0)] * (column.ndim - 1), mode="edge"
            )[own]
            for name, column in rows.items()
        }
        with sharding.activate(mesh):
            outputs = run(params, sharding.place_batch(padded, mesh, size))
        return lambda: {
            name: column[:count] for name, column in jax.device_get(outputs).items()
        }

    return submit
