"""What a run needs of each device's memory, in bytes and in words."""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.training.step import TrainState


def bytes_per_device(tree: Any) -> int:
    """Bytes of a device's part of a tree of arrays, or of their shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def require(config: ConfigDict, *, trains: bool) -> None:
    """Compares the least that a run can do with, by formula, with all there is.

    What does not fit by far would end the process inside XLA, without a word.

    Args:
      config: its vocabulary's size is known.
      trains: else it is only asked.

    Raises:
      UserError: parameters and optimizer state, or a batch, do not fit.
    """
    model, train = config.model, config.train
    hidden, inner = model.hidden_size, model.intermediate_size
    tables = model.vocab_size + model.max_position_embeddings + model.type_vocab_size
    layers = model.num_hidden_layers * (4 * hidden * hidden + 2 * hidden * inner)
    seeds = train.seeds if trains else 1
    state = 4 * seeds * (tables * hidden + layers) * (3 if trains else 1)
    there = _there()
    if state > there:
        raise UserError(
            f"config.model.hidden_size={hidden}, num_hidden_layers="
            f"{model.num_hidden_layers}, intermediate_size={inner}, vocab_size="
            f"{model.vocab_size} and config.train.seeds={seeds} take "
            f"{_megabytes(state)}, and all devices together have {_megabytes(there)}"
        )
    length = config.task.get("max_seq_length", config.corpus.max_seq_length)
    batches = {"evaluate": (config.evaluate.batch_size, 1)}
    if trains:
        batches["train"] = (train.batch_size * seeds, train.micro_batches)
    else:
        batches["predict"] = (config.predict.batch_size, 1)
    for name, (rows, parts) in batches.items():
        # Ids, masks, segments and labels of all, the hidden states of a part.
        least = 4 * length * (4 * rows + rows // parts * hidden)
        if least > there:
            raise UserError(
                f"config.{name}.batch_size={config[name].batch_size}: a batch takes "
                f"at least {_megabytes(least)}, and all devices together have "
                f"{_megabytes(there)}"
            )


def _there() -> int:
    """Bytes of all devices together."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] * jax.device_count()
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return here * jax.process_count()


def of_state(state: TrainState) -> str:
    """A line on what parameters and optimizer take all the while."""
    parts = {"parameters": state.params, "optimizer": state.opt_state}
    shares = [f"{name} {_share(tree)}" for name, tree in parts.items()]
    return f"on each device: {', '.join(shares)}"


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
