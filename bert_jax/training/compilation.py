"""Creates a run's first state; traces, lowers and compiles its steps."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array

from bert_jax.runtime import signals
from bert_jax.runtime.clock import Stopwatch
from bert_jax.runtime.terminal import Progress
from bert_jax.tasks.task import Task
from bert_jax.training import frozen, memory, sharding, step
from bert_jax.training import optimizer as optimizers
from bert_jax.training.seeds import Seeds
from bert_jax.types import DeviceBatch


def trace_step(
    task: Task,
    seeds: Seeds,
    mesh: Mesh,
    state: step.TrainState,
    batch: Mapping[str, Any],
    micro_batches: int,
) -> jax.stages.Traced:
    """A training step on a mesh, for any kind of device; computes nothing.

    Args:
      state: arrays, or their shapes with shardings; of all seeds.
      batch: likewise.
      micro_batches: the number of parts that the batch is split into.

    Returns:
      A function of (state, batch, `seeds.array`, the learning rate), which donates the
      state. The rate is an argument, so that runs which differ in it share a program.
    """

    loss = task.carried_loss if state.carry else task.loss

    def train_step(state: Any, batch: Any, numbers: Any, learning_rate: Any) -> Any:
        one_seed = functools.partial(
            step.train_step,
            learning_rate=learning_rate,
            loss=frozen.loss_of_the_rest(loss, tuple(task.config.optimizer.frozen)),
            loss_weights=task.loss_weights,
            optimizer=optimizers.make(task.config, task.unused(), learning_rate),
            micro_batches=micro_batches,
            spike_factor=float(task.config.train.spike_factor),
        )
        return seeds.each(one_seed)(state, batch, numbers)

    jitted = jax.jit(
        train_step,
        donate_argnums=0,
        out_shardings=(sharding.shardings_of(state), sharding.replicated(mesh)),
    )
    with sharding.activate(mesh):
        rate = jax.ShapeDtypeStruct((), jnp.float32)
        return jitted.trace(state, batch, seeds.array, rate)


def first_state(
    task: Task,
    seeds: Seeds,
    optimizer: optax.GradientTransformation,
    abstract: step.TrainState,
) -> step.TrainState:
    """Creates the state before the first step, of all seeds, from random values.

    Args:
      abstract: of one seed, as `state_shardings.abstract_state` gives it.
    """

    def create(seed: Array) -> step.TrainState:
        params = nn.meta.unbox(task.init_params(jax.random.key(seed)))
        return step.init_state(params, optimizer, task.init_carry())

    shardings = sharding.shardings_of(seeds.abstract(abstract))
    return jax.jit(seeds.each(create), out_shardings=shardings)(seeds.array)


def trace_outputs(
    function: Callable, mesh: Mesh, params: Any, batch: Mapping[str, Any]
) -> jax.stages.Traced:
    """A function of (params, batch) on a mesh, as evaluation and prediction run it."""
    jitted = jax.jit(function, out_shardings=sharding.replicated(mesh))
    with sharding.activate(mesh):
        return jitted.trace(params, batch)


class CompiledStep:
    """The step of a run, compiled once for each shape of a batch.

    Args:
      trace: calls `trace_step` with a state, a batch and the number of micro-batches.
      progress: prints the memory that the longest batch takes, and the notices.
      notices: the task's, about the data so far.
      shapes: about how many shapes the batches will have.
    """

    def __init__(
        self,
        trace: Callable[[step.TrainState, DeviceBatch, int], jax.stages.Traced],
        stop: signals.Stop,
        clock: Stopwatch,
        progress: Progress,
        notices: Counter[str],
        shapes: int,
    ):
        self._trace, self._stop = trace, stop
        self._clock, self._progress, self._notices = clock, progress, notices
        self._shapes = shapes
        self._compiled: dict[tuple, jax.stages.Compiled] = {}
        self._widest = 0  # positions

    def for_batch(
        self, state: step.TrainState, batch: DeviceBatch, micro_batches: int
    ) -> jax.stages.Compiled:
        """The step for a batch of these shapes, as `trace_step` returns it.

        Raises:
          Interrupted: a signal arrived during compilation.
        """
        shapes = (micro_batches, *((name, x.shape) for name, x in batch.items()))
        if shapes not in self._compiled:
            length = batch["input_ids"].shape[-1]
            number = len(self._compiled) + 1
            known = self._shapes > 1 and number <= self._shapes
            of = f" ({number} of {self._shapes})" if known else ""
            self._progress.note(f"compiling the step at length {length}{of}")
            with self._clock("compile"), self._progress.aside():
                self._compiled[shapes] = signals.run_interruptibly(
                    lambda: self._trace(state, batch, micro_batches).lower().compile(),
                    self._stop,
                )
            positions = batch["input_ids"].size
            if positions > self._widest:
                self._widest = positions
                line = memory.of_step(self._compiled[shapes], batch)
                self._progress.note(line)
            self._progress.tell(self._notices)
        return self._compiled[shapes]
