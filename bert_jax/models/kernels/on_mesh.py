"""Kernels on a mesh: the compiler does not know how to split one over devices."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

_ROWS = ("data", "fsdp")
# [batch, length, heads, head_dim], [batch, length] and [batch, heads, length]: rows and
# heads are split, a row's positions never.
VECTORS = PartitionSpec(_ROWS, None, "tensor", None)
IDS = PartitionSpec(_ROWS)
WORDS = PartitionSpec(_ROWS, "tensor")


def on_mesh(
    compute: Callable[..., Any],
    in_specs: tuple[PartitionSpec, ...],
    out_specs: Any = VECTORS,
) -> Callable[..., Any]:
    """Wraps a function of rows and heads, such as attention, so that each device of the
    mesh in use computes its own.

    Args:
      compute: arrays -> one array, for the rows and heads given.
      in_specs: One of the specs above for each of its arguments.
      out_specs: The same for its result.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return compute
    return jax.shard_map(
        compute, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
