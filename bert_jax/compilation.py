"""The step of a run as the compiler gets it."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from bert_jax import sharding, step
from bert_jax.seeds import Seeds
from bert_jax.tasks.task import Task


def lower_step(
    task: Task,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    seeds: Seeds,
    mesh: Mesh,
    state: step.TrainState,
    batch: Mapping[str, Any],
    micro_batches: int,
) -> jax.stages.Lowered:
    """A training step on a mesh, to be compiled; nothing is computed.

    Args:
      state: arrays, or their shapes with shardings; of all seeds.
      batch: likewise.
      micro_batches: the batch is worked through in so many parts.

    Returns:
      A function of (state, batch, `seeds.array`), which donates the state.
    """
    one_seed = functools.partial(
        step.train_step,
        loss=task.loss,
        optimizer=optimizer,
        schedule=schedule,
        micro_batches=micro_batches,
        spike_factor=task.config.train.spike_factor,
    )
    jitted = jax.jit(
        seeds.each(one_seed),
        donate_argnums=0,
        out_shardings=(sharding.shardings_of(state), sharding.replicated(mesh)),
    )
    with sharding.activate(mesh):
        return jitted.lower(state, batch, seeds.array)
