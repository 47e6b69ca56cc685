"""The whole state of a run on the mesh: parameters, and the optimizer's moments."""

from typing import Any

import flax.linen as nn
import jax
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.tasks.task import Task
from bert_jax.training import sharding
from bert_jax.training.step import TrainState, init_state


def abstract_state(
    task: Task, optimizer: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
    """Shapes, dtypes and shardings of the whole state; allocates nothing.

    Moments are split as `config.mesh.optimizer` says, a carry like a batch.
    """
    boxed = jax.eval_shape(task.init_params, jax.random.key(0))
    shardings = sharding.parameter_shardings(boxed, mesh)
    whole = sharding.replicated(mesh)
    state = jax.eval_shape(
        lambda params: init_state(params, optimizer, task.init_carry()),
        nn.meta.unbox(boxed),
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
    """Whether it stands for the moments of a parameter that has none."""
    return isinstance(leaf, optax.MaskedNode)


def _over_data(unsplit: NamedSharding, shape: tuple[int, ...]) -> NamedSharding:
    """Splits an array over the data axis too, along the longest divisible axis; prefers
    axes that are not split yet. Without a divisible axis, returns it unchanged."""
    mesh, spec = unsplit.mesh, list(unsplit.spec)
    parts = [1 if name is None else mesh.shape[name] for name in spec]
    for axis in sorted(range(len(shape)), key=lambda i: (parts[i] > 1, -shape[i])):
        if shape[axis] % (parts[axis] * mesh.shape["data"]) == 0:
            spec[axis] = "data" if spec[axis] is None else (spec[axis], "data")
            break
    return NamedSharding(mesh, PartitionSpec(*spec))
