"""A function of (params, batch), compiled to answer rows."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.tasks.task import Ask, Batch, Outputs, Step
from bert_jax.training import sharding


def asking(function: Step, params: Any, mesh: Mesh, size: int) -> Ask:
    """Compiles a function of (params, batch); returns one of a batch of up to `size`
    rows."""
    submit = submitting(function, params, mesh, size)
    return lambda rows: submit(rows)()


def submitting(
    function: Step, params: Any, mesh: Mesh, size: int
) -> Callable[[Batch], Callable[[], Outputs]]:
    """As `asking`, but starts the computation and returns a function that waits."""
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
