"""The memory a run needs on each device: estimates, checks and printed lines."""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax import family
from bert_jax.errors import UserError


def bytes_per_device(tree: Any) -> int:
    """Bytes per device of a tree of arrays, or of their shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def require(config: ConfigDict, *, trains: bool) -> None:
    """Compares a lower bound of a run's memory, by formula, with all devices' memory.

    A run that is far too large would crash inside XLA without an error message.

    Args:
      config: with the vocabulary's size filled in.
      trains: False: only evaluates or predicts.

    Raises:
      UserError: parameters and optimizer state, or a batch, do not fit.
    """
    model, train = config.model, config.train
    hidden, inner = model.hidden_size, model.intermediate_size
    tables = family.of(config).table_rows(config)
    layers = model.num_hidden_layers * (4 * hidden * hidden + 2 * hidden * inner)
    seeds = train.seeds if trains else 1
    moments = trains and not config.optimizer.frozen
    state = 4 * seeds * (tables * hidden + layers) * (3 if moments else 1)
    available = _available()
    if state > available:
        raise UserError(
            f"config.model.hidden_size={hidden}, num_hidden_layers="
            f"{model.num_hidden_layers}, intermediate_size={inner}, vocab_size="
            f"{model.vocab_size} and config.train.seeds={seeds} take "
            f"{_megabytes(state)}, and all devices together have "
            f"{_megabytes(available)}; choose smaller ones"
        )
    length = config.task.get("max_seq_length", config.corpus.max_seq_length)
    batches = {"evaluate": (config.evaluate.batch_size, 1)}
    if trains:
        batches["train"] = (train.batch_size * seeds, train.micro_batches)
    else:
        batches["predict"] = (config.predict.batch_size, 1)
    for name, (rows, parts) in batches.items():
        # Ids, masks, segments and labels of the batch, hidden states of a micro-batch.
        least = 4 * length * (4 * rows + rows // parts * hidden)
        if least > available:
            raise UserError(
                f"config.{name}.batch_size={config[name].batch_size}: a batch takes "
                f"at least {_megabytes(least)}, and all devices together have "
                f"{_megabytes(available)}; lower it"
            )


def _available() -> int:
    """Bytes of all devices together."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] * jax.device_count()
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return here * jax.process_count()


def of_state(params: Any, opt_state: Any) -> str:
    """A line with the memory of parameters and optimizer state."""
    parts = {"parameters": params, "optimizer": opt_state}
    shares = [f"{name} {_share(tree)}" for name, tree in parts.items()]
    return f"on each device: {', '.join(shares)}"


def of_step(compiled: jax.stages.Compiled, batch: Mapping[str, Any]) -> str:
    """A line with the extra memory of a running step, as the compiler reports it."""
    report = compiled.memory_analysis()
    size = "unknown" if report is None else _megabytes(report.temp_size_in_bytes)
    length = batch["input_ids"].shape[-1]
    return f"in a step at length {length}: activations, gradients {size} more"


def _share(tree: Any) -> str:
    """Megabytes per device, and their fraction of the whole tree."""
    per_device = bytes_per_device(tree)
    whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
    share = "all" if per_device == whole else f"1/{whole / per_device:.3g}"
    return f"{_megabytes(per_device)} ({share})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
