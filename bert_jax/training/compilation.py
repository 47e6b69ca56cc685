"""The first state of a run and its step, traced and compiled."""

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from bert_jax.runtime import processes
from bert_jax.tasks.task import Task
from bert_jax.training import frozen, sharding, step
from bert_jax.training import optimizer as optimizers
from bert_jax.training.log import Log
from bert_jax.training.seeds import Seeds
from bert_jax.training.state import TrainState, abstract_state, init_state
from bert_jax.types import Arrays

# For XLA's GPU compiler: gradients of an embedding are else added up in any order.
IN_ORDER = {"xla_gpu_exclude_nondeterministic_ops": True}
# It would join products that share an array, and cut and join their results in memory;
# its own products hide from cuBLASLt the sums that follow them.
PRODUCTS = {
    "xla_gpu_dot_merger_threshold_mb": 0,
    "xla_gpu_enable_triton_gemm": False,
}


class Step:
    """A training step on a mesh, compiled once for each shape of a batch.

    Attributes:
      abstract: shapes, dtypes and shardings of one seed's state.
    """

    def __init__(self, task: Task, mesh: Mesh):
        """Computes nothing.

        Raises:
          UserError: the optimizer or its state is wrong, or several seeds where one is
            needed.
        """
        self.task, self.mesh = task, mesh
        self.seeds = Seeds(task.config)
        self._optimizer = optimizers.make(task.config, task.unused())
        self.abstract = abstract = abstract_state(task, self._optimizer, mesh)
        name = task.config.optimizer.name
        optimizers.check_state(
            name, self._optimizer, abstract.params, abstract.opt_state
        )
        self._compiled: dict[tuple, jax.stages.Compiled] = {}

    def first_state(self) -> TrainState:
        """Creates the state before the first step, of all seeds, from random values.

        The processor draws them: a GPU's compiler takes most of a minute for this, and
        a seed gives the same values on all devices.
        """
        task, optimizer = self.task, self._optimizer
        shardings = sharding.shardings_of(self.seeds.abstract(self.abstract))

        def draw(seed: Array) -> Any:
            return nn.meta.unbox(task.init_params(jax.random.key(seed)))

        def complete(params: Any) -> TrainState:
            return init_state(params, optimizer, task.init_carry())

        with jax.default_device(_processor()):
            drawn = jax.device_get(jax.jit(self.seeds.each(draw))(self.seeds.array))
        params = jax.tree.map(
            lambda x, where: jax.make_array_from_callback(
                x.shape, where, x.__getitem__
            ),
            drawn,
            shardings.params,
        )
        finish = self.seeds.each(complete)
        return jax.jit(finish, out_shardings=shardings, donate_argnums=0)(params)

    def trace(
        self, state: TrainState, batch: Mapping[str, Any], micro_batches: int
    ) -> jax.stages.Traced:
        """Traces a step, for any kind of device; computes nothing.

        Args:
          state: arrays, or their shapes with shardings; of all seeds.
          batch: likewise.
          micro_batches: the number of parts that the batch is split into.

        Returns:
          A function of (state, batch, `seeds.array`, the learning rate), which donates
          the state. The rate is an argument, so that runs which differ in it share a
          program.
        """
        task, config = self.task, self.task.config
        loss = task.carried_loss if state.carry else task.loss
        learning = functools.partial(
            frozen.loss_of_the_rest, prefixes=tuple(config.optimizer.frozen)
        )
        losses: dict[str, Any] = {"loss": learning(loss)}
        if task.compares_rows:
            losses = {"loss": task.batch_loss, "vectors": learning(task.vectors)}

        def train_step(state: Any, batch: Any, numbers: Any, rate: Any) -> Any:
            one_seed = functools.partial(
                step.train_step,
                learning_rate=rate,
                **losses,
                loss_weights=task.loss_weights,
                optimizer=self._optimizer,
                micro_batches=micro_batches,
                spike_factor=float(config.train.spike_factor),
            )
            return self.seeds.each(one_seed)(state, batch, numbers)

        options: dict[str, bool | int] = {}
        if self.mesh.devices.flat[0].platform == "gpu":
            options = PRODUCTS | (IN_ORDER if config.train.deterministic else {})
        jitted = jax.jit(
            train_step,
            donate_argnums=0,
            out_shardings=(
                sharding.shardings_of(state),
                sharding.replicated(self.mesh),
            ),
            compiler_options=options or None,
        )
        with sharding.activate(self.mesh):
            rate = jax.ShapeDtypeStruct((), jnp.float32)
            return jitted.trace(state, batch, self.seeds.array, rate)

    def compiled(
        self,
        state: TrainState,
        batch: Arrays,
        micro_batches: int,
        log: Log | None = None,
    ) -> jax.stages.Compiled:
        """The step for a batch of these shapes, as `trace` gives it.

        Args:
          log: times the compilation, and says that it takes place. None means neither.
        """
        shapes = (micro_batches, *((name, x.shape) for name, x in batch.items()))
        if shapes not in self._compiled:
            with log.compiling(batch) if log else contextlib.nullcontext():
                traced = self.trace(state, batch, micro_batches)
                self._compiled[shapes] = traced.lower().compile()
                processes.barrier()  # Gloo waits 30 seconds for the slowest, no longer
        return self._compiled[shapes]


def _processor() -> jax.Device | None:
    """None: JAX_PLATFORMS leaves it out, and the first device takes its place."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
