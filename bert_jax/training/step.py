"""The state of a run, and the training step: a pure function of (state, batch), and its
compiled form. `transforms` makes the gradient of which it takes a step."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key

from bert_jax import registry
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
from bert_jax.training.transforms import (
    Gradient,
    Transform,
    Weights,
    accumulate,
    beside,
    cached,
    join,
    merged,
    only,
    select_params,
    split_params,
    uneven_weights,
    with_divisors,
)
from bert_jax.training.watch import Watcher, watch_step
from bert_jax.types import Arrays, Params

# For XLA's GPU compiler, which otherwise adds an embedding's gradients in any order.
IN_ORDER = {"xla_gpu_exclude_nondeterministic_ops": True}
# It would join products that share an array, and cut and join their results in memory.
# Its own products hide from cuBLASLt the sums that follow them.
PRODUCTS = {
    "xla_gpu_dot_merger_threshold_mb": 0,
    "xla_gpu_enable_triton_gemm": False,
}


class TrainState(NamedTuple):
    """Everything a run carries from step to step."""

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState
    running_stats: anomaly.RunningStats = anomaly.RunningStats()

    def evaluation_params(self) -> Params:
        """Returns the parameters to evaluate, see `optimizer.evaluation_params`."""
        return optimizers.evaluation_params(self.opt_state, self.params)

    def items(self) -> dict[str, Any]:
        """Returns the saved parts: all but `step`, which is the checkpoint's name.

        `params` are those to evaluate. Where others learn, these are saved too.
        """
        items = {
            "params": self.evaluation_params(),
            "opt_state": self.opt_state,
            "running_stats": self.running_stats._asdict(),
        }
        if optimizers.find_averages(self.opt_state):
            items["learning_params"] = self.params
        return items

    def restored(self, items: Mapping[str, Any], step: int) -> "TrainState":
        """Returns the state of a checkpoint's items, with this state's shardings."""
        counter = jnp.full(self.step.shape, step, jnp.int32)
        return TrainState(
            jax.device_put(counter, self.step.sharding),
            items.get("learning_params", items["params"]),
            items["opt_state"],
            anomaly.RunningStats(**items["running_stats"]),
        )


def init_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    learns: Callable[[str], bool] | None = None,
) -> TrainState:
    """Returns the state before the first step.

    Args:
      learns: See `optimizer.trainable_filter`.
    """
    stats, count = jax.tree.map(jnp.asarray, anomaly.RunningStats()), jnp.int32(0)
    opt_state = optimizer.init(split_params(params, learns)[0])
    return TrainState(count, params, opt_state, stats)


def abstract_state(
    task: Task,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    boxed: Params | None = None,
) -> TrainState:
    """Returns shapes, dtypes and shardings of the whole state. Allocates nothing.

    Moments are split as `config.mesh.optimizer` specifies.

    Args:
      boxed: Shapes of the run's parameters, boxed. None means the task's.
    """
    params = sharding.abstract_arrays(boxed or task.param_shapes, mesh)
    learns = optimizers.trainable_filter(task.config.optimizer, params)
    shardings = sharding.shardings_of(params)
    whole = sharding.replicated_sharding(mesh)
    state = jax.eval_shape(lambda params: init_state(params, optimizer, learns), params)
    zero1 = task.config.mesh.optimizer == "zero1"

    def place(leaf: Any, leaf_sharding: NamedSharding) -> Any:
        if _is_frozen(leaf):
            return leaf
        return _over_data(leaf_sharding, leaf.shape) if zero1 else leaf_sharding

    opt_shardings = optax.tree.map_params(
        optimizer,
        place,
        state.opt_state,
        split_params(shardings, learns)[0],
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
    key: Key[Array, ""],
    learning_rate: Float[Array, ""] | float,
    gradient: Gradient,
    optimizer: optax.GradientTransformation,
    watchers: Sequence[Watcher] = (),
) -> tuple[TrainState, dict[str, Any]]:
    """Takes one step. An anomaly changes only the counters.

    Args:
      state: State before the step. Do not use it afterwards (its buffers are donated).
      batch: Arrays [batch, ...]. The loss finds the step in `batch["step"]` [batch].
      key: Key of the run's dropout.
      learning_rate: Rate that is passed to `optimizer.update`, and logged.
      gradient: Function that returns the gradients of the parameters that learn.
      optimizer: Result of `optimizer.make_optimizer`.
      watchers: Entries of WATCHERS.

    Returns:
      The next state, and the metrics: `loss`, each named loss, `grad_norm` (before
      clipping), `learning_rate`, those of `anomaly.detect_anomaly` and the gradient's.
      With watchers also `watched`, their numbers by name.
    """
    key = jax.random.fold_in(key, state.step)
    batch = _at_step(batch, state.step)
    state = state._replace(params=optimizers.with_step(state.params, state.step))
    grads, losses, further = gradient(state.params, batch, key)
    loss: Any = sum(losses.values())
    grad_norm = optax.tree.norm(grads)
    bad, stats, judged = anomaly.detect_anomaly(state.running_stats, loss, grad_norm)
    unless = anomaly.SelectUnlessBad(bad)
    params = select_params(state.params, grads)
    # What Optax's optimizers may ask for. What none asks for is not computed.
    extra = {
        "value": loss,
        "grad": grads,
        "value_fn": lambda learning: sum(
            gradient(join(state.params, learning), batch, key).losses.values()
        ),
        "learning_rate": learning_rate,
        "unless": unless,
    }
    updates, opt_state = optax.with_extra_args_support(optimizer).update(
        grads, state.opt_state, params, **extra
    )
    watched = watch_step(watchers, params, grads, updates)
    params, opt_state = unless(
        (optax.apply_updates(params, updates), opt_state), (params, state.opt_state)
    )
    metrics = {
        "loss": loss,
        **losses,
        "learning_rate": jnp.asarray(learning_rate, jnp.float32),
        "grad_norm": grad_norm,
        **judged,
        **further,
    }
    if watchers:
        metrics["watched"] = watched
    params = join(state.params, params)
    return TrainState(state.step + 1, params, opt_state, stats), metrics


def _at_step(batch: Arrays, step: Any) -> Arrays:
    """Returns a batch with the column `step`."""
    rows = len(next(iter(batch.values())))
    return {**batch, "step": jnp.full((rows,), step, jnp.int32)}


def _transforms(task: Task) -> list[Transform]:
    """Returns the changes that `train.transforms` names.

    Raises:
      UserError: One changes a loss, and the task compares the rows of a batch.
    """
    names = task.config.train.transforms
    found = [registry.TRANSFORMS.lookup(name) for name in names]
    for name, transform in zip(names, found, strict=True):
        if task.compares_rows and transform.loss is not Transform().loss:
            raise UserError(
                f"config.train.transforms={names}: {name} changes a loss of single "
                f"rows, and {task.config.task.name} compares rows; leave it out"
            )
    return found


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
        optimizers.find_averages(self.abstract.opt_state)  # refuses two kinds
        params = self.abstract.params
        self._learns = optimizers.trainable_filter(task.config.optimizer, params)
        self._transforms = _transforms(task)
        if task.compares_rows:
            for name in task.model_config.layer_class.losses(task.model_config):
                raise UserError(
                    f"config.model.layer={task.config.model.layer}: adds the loss "
                    f"{name}, and {task.config.task.name} compares rows; use another "
                    "layer"
                )
        self._weights: Weights = task.loss_weights
        for transform in self._transforms:
            self._weights = with_divisors(self._weights, transform.divisors)
        given = task.constants()
        taken = {"average", *params, *(base.abstract if base else ())}
        if both := given.keys() & taken:
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

    def model_params(self, params: Params, step: int) -> Params:
        """Returns the parameters that the model reads, of one seed's after `step`
        steps."""
        return params if self._base is None else self._base.merged(params, step)

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

        with jax.default_device(sharding.processor()):
            drawn = jax.device_get(self.seeds.each(draw)(self.seeds.array))
        params = jax.tree.map_with_path(place, abstract.params)
        finish, shardings = self.seeds.each(self.begin), sharding.shardings_of(abstract)
        return jax.jit(finish, out_shardings=shardings, donate_argnums=0)(params)

    def begin(self, params: Params) -> TrainState:
        """Returns one seed's state before the first step."""
        return init_state(params, self._optimizer, self._learns)

    def trace(
        self,
        state: TrainState,
        batch: Mapping[str, Any],
        micro_batches: int,
        watchers: Sequence[Watcher] = (),
    ) -> jax.stages.Traced:
        """Traces a step, for any kind of device. Computes nothing.

        Args:
          state: Arrays of all seeds, or their shapes with shardings.
          batch: Arrays or shapes, like `state`.
          micro_batches: Number of parts that the batch is split into.
          watchers: Entries of WATCHERS.

        Returns:
          A function of (state, batch, `seeds.array`, the learning rate, `constants`),
          which donates the state. The rate is an argument, so that runs which differ in
          it share a program, and the constants, so that they are not part of it.
        """
        config = self.task.config
        options: dict[str, bool | int] = {}
        if self.mesh.devices.flat[0].platform == "gpu":
            options = PRODUCTS | (IN_ORDER if config.train.deterministic else {})

        def train_step(
            state: Any, batch: Any, numbers: Any, rate: Any, constants: Any
        ) -> tuple[Any, Any]:  # a profile and a compiler's log show this name
            one_seed = self.step_of_seed(micro_batches, rate, constants, watchers)
            return self.seeds.each(one_seed)(state, batch, numbers)

        jitted = jax.jit(
            train_step,
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

    def step_of_seed(
        self,
        micro_batches: int,
        rate: Any,
        constants: Any,
        watchers: Sequence[Watcher] = (),
    ) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        """Returns a function from a state, a batch and a seed to the next state and
        metrics."""

        def one_seed(state: TrainState, batch: Any, number: Any) -> tuple:
            key, step = jax.random.key(number), state.step
            own = {} if self._base is None else self._base.abstract
            base = {name: constants[name] for name in own}
            # A teacher keeps its step.
            others = {**constants, **optimizers.with_step(base, step)}
            if optimizers.find_averages(state.opt_state):
                others["average"] = optimizers.with_step(
                    state.evaluation_params(), step
                )
            gradient = self._gradient(micro_batches, others)
            return train_step(
                state, batch, key, rate, gradient, self._optimizer, watchers
            )

        return one_seed

    def _gradient(self, micro_batches: int, constants: Params) -> Gradient:
        """Returns the gradient of the task's losses."""
        task, model = self.task, self.task.config.model
        function: Callable[..., Any] = task.loss
        if task.compares_rows:
            function = task.vectors
        for transform in self._transforms:
            function = transform.loss(function, task)
        if self._base is not None:
            function = merged(function, lambda params: lora.merge(params, model))
        function = beside(function, constants)

        def make(function: Callable[..., Any]) -> Gradient:
            if not task.compares_rows:
                logged = [name for x in self._transforms for name in x.logged]
                return accumulate(function, self._weights, micro_batches, logged)
            return cached(function, task.batch_loss, self._weights, micro_batches)

        gradient = only(make, function, self._learns)
        for transform in self._transforms:
            gradient = transform.gradient(gradient, task)
        return gradient

    def parameter_counts(self) -> tuple[int, int]:
        """Returns the numbers of a seed's parameters: the model's, those that learn."""
        params, base = self.abstract.params, self._base
        learning = split_params(params, self._learns)[0]
        whole = params if base is None else join(params, base.abstract)
        return count_parameters(whole), count_parameters(learning)

    def compiled(
        self,
        state: TrainState,
        batch: Arrays,
        micro_batches: int,
        log: Log,
        watchers: Sequence[Watcher] = (),
    ) -> jax.stages.Compiled:
        """Returns the step for a batch of these shapes, as traced by `trace`. The log
        reports its compilation."""
        each = ((name, x.shape) for name, x in batch.items())
        shapes = (micro_batches, bool(watchers), *each)
        if shapes not in self._compiled:
            with log.compiling(batch["input_ids"].shape[-1]):
                traced = self.trace(state, batch, micro_batches, watchers)
                self._compiled[shapes] = traced.lower().compile()
            self._check_weights(batch, micro_batches, log)
            processes.barrier()  # Gloo waits 30 seconds for the slowest, no longer
        return self._compiled[shapes]

    def _check_weights(self, batch: Arrays, micro_batches: int, log: Log) -> None:
        """Warns of losses that may count more often in several micro-batches."""
        if micro_batches == 1 or self.task.compares_rows:
            return
        weights = self._weights
        found = self.seeds.each(
            lambda rows: uneven_weights(weights, _at_step(rows, 0), micro_batches)
        )
        with sharding.activate_mesh(self.mesh):
            uneven = jax.device_get(jax.jit(found)(batch))
        for name in [name for name, is_uneven in uneven.items() if is_uneven.any()]:
            log.note(
                f"warning: the weight of {name} in a batch is not the sum of those in "
                f"its {micro_batches} micro-batches. If it is a mean, not a sum over "
                f"rows, it counts {micro_batches} times (docs/extending.md)"
            )
