"""Kernels on a mesh: the compiler does not know how to split one over devices."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

ROWS = ("data", "fsdp")
# [batch, length, heads, head_dim], [batch, length] and [batch, heads, length]: rows and
# heads are split, a row's positions never.
VECTORS = PartitionSpec(ROWS, None, "tensor", None)
IDS = PartitionSpec(ROWS)
WORDS = PartitionSpec(ROWS, "tensor")


def on_mesh(
    attend: Callable[..., Any], in_specs: tuple[PartitionSpec, ...]
) -> Callable[..., Any]:
    """An attention with its rows and heads split as the mesh in use splits them.

    Args:
      attend: arrays -> [batch, length, heads, head_dim], for the rows and heads given.
      in_specs: one of the above for each of its arguments.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return attend
    return jax.shard_map(attend, in_specs=in_specs, out_specs=VECTORS, check_vma=False)
