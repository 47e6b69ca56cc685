"""The state of a run, and the training step: a pure function of (state, batch), and its
compiled form.

A loss is a dict of named sums over the rows of a batch. Each micro-batch's sums are
divided by the weights of the whole batch and then added, so the result does not depend
on how a batch is split over micro-batches and devices.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.errors import UserError
from bert_jax.models import lora
from bert_jax.models.heads import count_parameters
from bert_jax.models.initial import param_path
from bert_jax.runtime import processes
from bert_jax.tasks.task import Task
from bert_jax.training import anomaly, sharding
from bert_jax.training import optimizer as optimizers
from bert_jax.training.log import Log
from bert_jax.training.seeds import Seeds
from bert_jax.training.setup import Base
from bert_jax.types import Arrays, Params, Scalars

# For XLA's GPU compiler, which otherwise adds an embedding's gradients in any order.
IN_ORDER = {"xla_gpu_exclude_nondeterministic_ops": True}
# It would join products that share an array, and cut and join their results in memory.
# Its own products hide from cuBLASLt the sums that follow them.
PRODUCTS = {
    "xla_gpu_dot_merger_threshold_mb": 0,
    "xla_gpu_enable_triton_gemm": False,
}

# (parameters, batch, key) -> named sums. With a carry in the state: (parameters, batch,
# key, carry) -> named sums and the next carry (`Task.carried_loss`).
LossFunction = Callable[..., Any]
WeightFunction = Callable[[Arrays], Scalars]
# Whether a parameter learns, by its path. None means that all do.
Learns = Callable[[str], bool] | None
# (parameters, batch, key) -> arrays [batch, ...], of which `Task.batch_loss` compares
# the rows.
VectorFunction = Callable[..., Arrays]


class TrainState(NamedTuple):
    """Everything a run carries from step to step."""

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState
    running_stats: anomaly.RunningStats = anomaly.RunningStats()
    carry: Any = ()  # arrays [batch, ...] for the next step, () without any

    def items(self) -> dict[str, Any]:
        """Returns the saved parts: all but `step`, which is the checkpoint's name."""
        items = {
            "params": self.params,
            "opt_state": self.opt_state,
            "running_stats": self.running_stats._asdict(),
        }
        return items | ({"carry": self.carry} if self.carry else {})

    def restored(self, items: Mapping[str, Any], step: int) -> "TrainState":
        """Returns the state of a checkpoint's items, with this state's shardings."""
        counter = jnp.full(self.step.shape, step, jnp.int32)
        return TrainState(
            jax.device_put(counter, self.step.sharding),
            items["params"],
            items["opt_state"],
            anomaly.RunningStats(**items["running_stats"]),
            items.get("carry", ()),
        )


def init_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    carry: Any = (),
    learns: Learns = None,
) -> TrainState:
    """Returns the state before the first step."""
    stats, count = jax.tree.map(jnp.asarray, anomaly.RunningStats()), jnp.int32(0)
    opt_state = optimizer.init(optimizers.split_learning(params, learns)[0])
    return TrainState(count, params, opt_state, stats, carry)


def abstract_state(
    task: Task,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    boxed: Params | None = None,
) -> TrainState:
    """Returns shapes, dtypes and shardings of the whole state. Allocates nothing.

    Moments are split as `config.mesh.optimizer` specifies, a carry like a batch.

    Args:
      boxed: Shapes of the run's parameters, boxed. None means the task's.
    """
    params = sharding.abstract_arrays(boxed or task.param_shapes, mesh)
    learns = optimizers.trainable_filter(task.config.optimizer, params)
    shardings = sharding.shardings_of(params)
    whole = sharding.replicated_sharding(mesh)
    state = jax.eval_shape(
        lambda params: init_state(params, optimizer, task.init_carry(), learns),
        params,
    )
    zero1 = task.config.mesh.optimizer == "zero1"

    def place(leaf: Any, leaf_sharding: NamedSharding) -> Any:
        if _is_frozen(leaf):
            return leaf
        return _over_data(leaf_sharding, leaf.shape) if zero1 else leaf_sharding

    opt_shardings = optax.tree.map_params(
        optimizer,
        place,
        state.opt_state,
        optimizers.split_learning(shardings, learns)[0],
        transform_non_params=lambda _: whole,
        is_leaf=_is_frozen,
    )
    return jax.tree.map(
        lambda leaf, leaf_sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=leaf_sharding
        ),
        state,
        state._replace(
            step=whole,
            params=shardings,
            opt_state=opt_shardings,
            running_stats=jax.tree.map(lambda _: whole, state.running_stats),
            carry=jax.tree.map(lambda _: sharding.batch_sharding(mesh), state.carry),
        ),
    )


def _is_frozen(leaf: Any) -> bool:
    """Returns whether a leaf replaces the moments of a parameter that has none."""
    return isinstance(leaf, optax.MaskedNode)


def _over_data(unsplit: NamedSharding, shape: tuple[int, ...]) -> NamedSharding:
    """Splits an array over the data axis too, along the longest divisible axis. Prefers
    axes that are not split yet. Without a divisible axis, returns it unchanged."""
    mesh, spec = unsplit.mesh, list(unsplit.spec)
    parts = [1 if name is None else mesh.shape[name] for name in spec]
    for axis in sorted(range(len(shape)), key=lambda i: (parts[i] > 1, -shape[i])):
        if shape[axis] % (parts[axis] * mesh.shape["data"]) == 0:
            spec[axis] = "data" if spec[axis] is None else (spec[axis], "data")
            break
    return NamedSharding(mesh, PartitionSpec(*spec))


def train_step(
    state: TrainState,
    batch: Arrays,
    seed: Int[Array, ""] | int,
    learning_rate: Float[Array, ""] | float,
    *,
    loss: LossFunction,
    loss_weights: WeightFunction,
    optimizer: optax.GradientTransformation,
    micro_batches: int,
    vectors: VectorFunction | None = None,
    learns: Learns = None,
    constants: Params = None,
) -> tuple[TrainState, dict[str, Array]]:
    """Takes one step. An anomaly changes only the counters.

    Args:
      state: State before the step. Do not use it afterwards (its buffers are donated).
      batch: Arrays [batch, ...].
      seed: Seed of the dropout root key.
      learning_rate: Rate that is passed to `optimizer.update`, and logged.
      loss: See `LossFunction`.
      loss_weights: Function that returns the divisor of each named sum of a batch.
      optimizer: Result of `optimizer.make_optimizer`.
      micro_batches: Number of parts that the batch is split into, 1 with a carry.
      vectors: See `VectorFunction`. `loss` then takes (vectors, batch), both whole, for
        any number of parts. None means that it takes (parameters, batch, key).
      learns: See `optimizer.trainable_filter`.
      constants: Arrays that `loss` or `vectors` finds among the parameters.

    Returns:
      The next state, and the metrics: `loss`, each named loss, `grad_norm` (before
      clipping), `learning_rate`, and those of `anomaly.detect_anomaly`.
    """
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    learning, rest = optimizers.split_learning(state.params, learns)
    others, divisors = optimizers.join(rest, constants), (loss_weights, micro_batches)
    if vectors is None:
        loss = _beside(loss, others)
        grads, (losses, carry) = _gradients(
            learning, batch, key, loss, *divisors, state.carry
        )
    else:
        vectors = _beside(vectors, others)
        grads, losses = _gradients_of_vectors(
            learning, batch, key, vectors, loss, *divisors
        )
        carry = state.carry
    metrics = {
        "loss": sum(losses.values()),
        **losses,
        "learning_rate": jnp.asarray(learning_rate, jnp.float32),
        "grad_norm": optax.tree.norm(grads),
    }
    bad, stats, judged = anomaly.detect_anomaly(
        state.running_stats, metrics["loss"], metrics["grad_norm"]
    )
    unless = anomaly.SelectUnlessBad(bad)
    updates, opt_state = optax.with_extra_args_support(optimizer).update(
        *(grads, state.opt_state, learning),
        learning_rate=learning_rate,
        unless=unless,
    )
    params, opt_state, carry = unless(
        (optax.apply_updates(learning, updates), opt_state, carry),
        (learning, state.opt_state, state.carry),
    )
    params = optimizers.join(params, rest)
    after = TrainState(state.step + 1, params, opt_state, stats, carry)
    return after, {**metrics, **judged}


def _beside(function: Callable[..., Any], others: Params) -> Callable[..., Any]:
    """Returns a function of parameters, and more, that finds others among them."""
    return lambda params, *rest: function(optimizers.join(params, others), *rest)


def _gradients(
    params: Params,
    batch: Arrays,
    key: Key[Array, ""],
    loss: LossFunction,
    loss_weights: WeightFunction,
    micro_batches: int,
    carry: Any,
) -> tuple[Params, tuple[dict[str, Array], Any]]:
    """Returns the summed losses' gradients, the losses by name, and the next carry."""
    carried = (carry,) if carry else ()
    weights = _at_least_some(loss_weights(batch))

    def part(params: Params, index: Int[Array, ""] | int, rows: Arrays) -> tuple:
        sums = loss(params, rows, jax.random.fold_in(key, index), *carried)
        sums, after = sums if carried else (sums, ())
        losses = {name: total / weights[name] for name, total in sums.items()}
        return sum(losses.values()), (losses, after)

    gradient = jax.grad(part, has_aux=True)
    if micro_batches == 1:
        return gradient(params, 0, batch)
    parts = _cut(batch, micro_batches)
    return _added(functools.partial(gradient, params), parts)


def uneven_weights(
    loss_weights: WeightFunction, batch: Arrays, micro_batches: int
) -> dict[str, Bool[Array, ""]]:
    """Returns, by loss, whether its weight differs from the sum of the parts' weights.

    Then the loss may not be a sum over rows either, such as a mean with the weight 1,
    which each part adds to the batch's loss.
    """
    parts = jax.lax.map(loss_weights, _cut(batch, micro_batches))
    return {
        name: jnp.abs(jnp.sum(parts[name]) - weight) > 1e-3 * jnp.abs(weight)
        for name, weight in loss_weights(batch).items()
    }


def _gradients_of_vectors(
    params: Params,
    batch: Arrays,
    key: Key[Array, ""],
    vectors: VectorFunction,
    loss: LossFunction,
    loss_weights: WeightFunction,
    micro_batches: int,
) -> tuple[Params, dict[str, Array]]:
    """Returns gradients of losses that compare rows of the whole batch, and the losses.

    Computes the vectors part by part, then the loss of all of them, then each part
    again with its vectors' gradients (Gao et al. 2021, gradient caching).
    """
    weights = _at_least_some(loss_weights(batch))

    def of_part(params: Params, index: Int[Array, ""] | int, rows: Arrays) -> Arrays:
        return vectors(params, rows, jax.random.fold_in(key, index))

    def total(found: Arrays) -> tuple:
        sums = loss(found, batch)
        losses = {name: value / weights[name] for name, value in sums.items()}
        return sum(losses.values()), losses

    def gradient(index: Int[Array, ""], part: tuple[Arrays, Arrays]) -> Params:
        rows, cotangents = part
        return jax.vjp(lambda p: of_part(p, index, rows), params)[1](cotangents)[0]

    if micro_batches == 1:
        whole = jax.grad(lambda p: total(of_part(p, 0, batch)), has_aux=True)
        return whole(params)
    parts = _cut(batch, micro_batches)
    numbered = (jnp.arange(micro_batches), parts)
    found = jax.lax.map(lambda part: of_part(params, *part), numbered)
    joined = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), found)
    cotangents, losses = jax.grad(total, has_aux=True)(joined)
    return _added(gradient, (parts, _cut(cotangents, micro_batches))), losses


def _at_least_some(weights: Scalars) -> Scalars:
    """Bounds the divisors, of which one is 0 where no row counts."""
    return {name: jnp.maximum(weight, 1e-6) for name, weight in weights.items()}


def _added(function: Callable[..., Any], parts: Any) -> Any:
    """Returns the sum of `function(index, part)` over parts [parts, rows, ...]."""

    def add(total: Any, index_and_rows: tuple) -> tuple:
        return jax.tree.map(jnp.add, total, function(*index_and_rows)), None

    first = jax.tree.map(lambda rows: rows[0], parts)
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, 0, first))
    count = len(jax.tree.leaves(parts)[0])
    return jax.lax.scan(add, zeros, (jnp.arange(count), parts))[0]


def _cut(batch: Arrays, parts: int) -> dict[str, Array]:
    """Reshapes [batch, ...] to [parts, batch / parts, ...], each part on every device.

    Part i takes rows i, i + parts, ...: each device cuts the rows it already has.
    """

    def cut(x: Array) -> Array:
        return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)

    return {name: cut(rows) for name, rows in batch.items()}


class Step:
    """A training step on a mesh, compiled once for each shape of a batch.

    Attributes:
      abstract: Shapes, dtypes and shardings of one seed's state.
      constant_values: The task's constants, as it returned them, without their boxes.
    """

    def __init__(self, task: Task, mesh: Mesh, base: Base | None = None):
        """Reads the task's constants. Computes nothing.

        Args:
          base: The parameters that do not learn in a run with LoRA.

        Raises:
          UserError: The optimizer is wrong, or several seeds where one is needed, or a
            constant has the name of a part of the model.
        """
        self.task, self.mesh = task, mesh
        self.seeds = Seeds(task.config)
        self._base = base
        self._initial = (task if base is None else base).initial_params
        shapes = self._initial.shapes
        self._optimizer = optimizers.make_optimizer(
            task.config, task.unused_parameters(), optimizers.axis_names(shapes)
        )
        self.abstract = abstract_state(task, self._optimizer, mesh, shapes)
        params = self.abstract.params
        self._learns = optimizers.trainable_filter(task.config.optimizer, params)
        given = task.constants()
        if both := given.keys() & {*params, *(base.abstract if base else ())}:
            raise UserError(f"Task.constants: {min(both)} is a part of the model's own")
        self.constant_values = nn.meta.unbox(given)
        self._abstract_constants = sharding.abstract_arrays(given, mesh)
        self._compiled: dict[tuple, jax.stages.Compiled] = {}

    @functools.cached_property
    def constants(self) -> dict[str, Any]:
        """The task's constants and a base, on the devices, the same for all seeds."""
        shardings = sharding.shardings_of(self._abstract_constants)
        placed = sharding.place_arrays(self.constant_values, shardings)
        return placed if self._base is None else placed | self._base.constants

    def model_params(self, params: Params) -> Params:
        """Returns the parameters that the model reads, of one seed's."""
        return params if self._base is None else self._base.merged(params)

    def first_state(self, given: Params | None = None) -> TrainState:
        """Creates the state before the first step, for all seeds.

        The processor draws random values: a GPU's compiler takes most of a minute for
        this, and a seed gives the same values on all devices.

        Args:
          given: Parameters that are not drawn, and shapes of others, as
            `setup.init_weights` returns them. Do not use them afterwards. None means
            that all are drawn.
        """
        abstract = self.seeds.abstract(self.abstract)
        leaves = jax.tree.leaves_with_path(given)
        read = {param_path(p): x for p, x in leaves if isinstance(x, jax.Array)}

        def draw(seed: Array) -> Any:
            return self._initial.draw(jax.random.key(seed), read)

        def place(keys: tuple, leaf: jax.ShapeDtypeStruct) -> Any:
            path = param_path(keys)
            if path in drawn:
                return sharding.place_arrays(drawn[path], leaf.sharding)
            same = jnp.broadcast_to(read[path], leaf.shape)  # for each seed
            return jax.device_put(same, leaf.sharding)

        def complete(params: Any) -> TrainState:
            carry = self.task.init_carry()
            return init_state(params, self._optimizer, carry, self._learns)

        with jax.default_device(sharding.processor()):
            drawn = jax.device_get(self.seeds.each(draw)(self.seeds.array))
        params = jax.tree.map_with_path(place, abstract.params)
        finish, shardings = self.seeds.each(complete), sharding.shardings_of(abstract)
        return jax.jit(finish, out_shardings=shardings, donate_argnums=0)(params)

    def trace(
        self, state: TrainState, batch: Mapping[str, Any], micro_batches: int
    ) -> jax.stages.Traced:
        """Traces a step, for any kind of device. Computes nothing.

        Args:
          state: Arrays of all seeds, or their shapes with shardings.
          batch: Arrays or shapes, like `state`.
          micro_batches: Number of parts that the batch is split into.

        Returns:
          A function of (state, batch, `seeds.array`, the learning rate, `constants`),
          which donates the state. The rate is an argument, so that runs which differ in
          it share a program, and the constants, so that they are not part of it.
        """
        config = self.task.config
        options: dict[str, bool | int] = {}
        if self.mesh.devices.flat[0].platform == "gpu":
            options = PRODUCTS | (IN_ORDER if config.train.deterministic else {})
        jitted = jax.jit(
            functools.partial(self.train_step, micro_batches),
            donate_argnums=0,
            out_shardings=(
                sharding.shardings_of(state),
                sharding.replicated_sharding(self.mesh),
            ),
            compiler_options=options or None,
        )
        with sharding.activate_mesh(self.mesh):
            rate = jax.ShapeDtypeStruct((), jnp.float32)
            constants = self._abstract_constants
            if self._base is not None:
                constants = constants | self._base.abstract
            return jitted.trace(state, batch, self.seeds.array, rate, constants)

    def train_step(
        self,
        micro_batches: int,
        state: Any,
        batch: Any,
        numbers: Any,
        rate: Any,
        constants: Any,
    ) -> tuple[Any, Any]:
        """Takes a step with all seeds, whose `numbers` are `seeds.array`."""
        task = self.task
        loss: LossFunction = task.carried_loss if state.carry else task.loss
        vectors = self._of_model(task.vectors) if task.compares_rows else None
        loss = task.batch_loss if task.compares_rows else self._of_model(loss)
        one_seed = functools.partial(
            train_step,
            learning_rate=rate,
            loss=loss,
            vectors=vectors,
            learns=self._learns,
            constants=constants,
            loss_weights=task.loss_weights,
            optimizer=self._optimizer,
            micro_batches=micro_batches,
        )
        return self.seeds.each(one_seed)(state, batch, numbers)

    def parameter_counts(self) -> tuple[int, int]:
        """Returns the numbers of a seed's parameters: the model's, those that learn."""
        own, base = self.abstract.params, self._base
        learning = optimizers.split_learning(own, self._learns)[0]
        whole = own if base is None else optimizers.join(own, base.abstract)
        return count_parameters(whole), count_parameters(learning)

    def _of_model(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turns a function of the model's parameters into one of the run's."""
        if self._base is None:
            return function
        model = self.task.config.model
        return lambda params, *rest: function(lora.merge(params, model), *rest)

    def compiled(
        self,
        state: TrainState,
        batch: Arrays,
        micro_batches: int,
        log: Log,
    ) -> jax.stages.Compiled:
        """Returns the step for a batch of these shapes, as traced by `trace`. The log
        reports its compilation."""
        shapes = (micro_batches, *((name, x.shape) for name, x in batch.items()))
        if shapes not in self._compiled:
            log.note(f"compiling the step at length {batch['input_ids'].shape[-1]}")
            traced = self.trace(state, batch, micro_batches)
            self._compiled[shapes] = traced.lower().compile()
            self._check_weights(batch, micro_batches, log)
            processes.barrier()  # Gloo waits 30 seconds for the slowest, no longer
        return self._compiled[shapes]

    def _check_weights(self, batch: Arrays, micro_batches: int, log: Log) -> None:
        """Warns of losses that may count more often in several micro-batches."""
        if micro_batches == 1 or self.task.compares_rows:
            return
        weights = self.task.loss_weights
        found = self.seeds.each(
            lambda rows: uneven_weights(weights, rows, micro_batches)
        )
        with sharding.activate_mesh(self.mesh):
            uneven = jax.device_get(jax.jit(found)(batch))
        for name in [name for name, is_uneven in uneven.items() if is_uneven.any()]:
            log.note(
                f"warning: the weight of {name} in a batch is not the sum of those in "
                f"its {micro_batches} micro-batches. If it is a mean, not a sum over "
                f"rows, it counts {micro_batches} times (docs/extending.md)"
            )
