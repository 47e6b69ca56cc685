"""What a run needs of each device's memory, in bytes and in words."""

import math
from collections.abc import Mapping
from typing import Any

import jax

from bert_jax.step import TrainState


def bytes_per_device(tree: Any) -> int:
    """Bytes of a device's part of a tree of arrays, or of their shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def of_state(state: TrainState) -> str:
    """A line on what parameters and optimizer take all the while."""
    parts = {"parameters": state.params, "optimizer": state.opt_state}
    told = [f"{name} {_share(tree)}" for name, tree in parts.items()]
    return f"on each device: {', '.join(told)}"


def of_step(compiled: jax.stages.Compiled, batch: Mapping[str, Any]) -> str:
    """A line on what a step takes on top while it runs, as the compiler reports it."""
    report = compiled.memory_analysis()
    size = "unknown" if report is None else _megabytes(report.temp_size_in_bytes)
    length = batch["input_ids"].shape[-1]
    return f"and in a step at length {length}: activations, gradients {size}"


def _share(tree: Any) -> str:
    """Megabytes, and which share of the whole they are."""
    own = bytes_per_device(tree)
    whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
    share = "all" if own == whole else f"1/{whole / own:.3g}"
    return f"{_megabytes(own)} ({share})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
