"""The state of a run on the mesh: parameters, the optimizer's moments, counters."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int

from bert_jax.tasks.task import Task
from bert_jax.training import anomaly, sharding
from bert_jax.types import Params


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
        return {**items, "carry": self.carry} if self.carry else items

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
    params: Params, optimizer: optax.GradientTransformation, carry: Any = ()
) -> TrainState:
    """Returns the state before the first step."""
    stats, count = jax.tree.map(jnp.asarray, anomaly.RunningStats()), jnp.int32(0)
    return TrainState(count, params, optimizer.init(params), stats, carry)


def abstract_state(
    task: Task, optimizer: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
    """Returns shapes, dtypes and shardings of the whole state. Allocates nothing.

    Moments are split as `config.mesh.optimizer` specifies, a carry like a batch.
    """
    params = sharding.abstract_params(task.init_params, mesh)
    whole = sharding.replicated_sharding(mesh)
    shardings = sharding.shardings_of(params)
    state = jax.eval_shape(
        lambda params: init_state(params, optimizer, task.init_carry()), params
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
        shardings,
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
