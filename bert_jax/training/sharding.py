"""The device mesh, the mapping of logical axes to it, and placing arrays."""

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.config.phases import phases_of
from bert_jax.data.rows import RowIndex
from bert_jax.errors import UserError
from bert_jax.models.kernels import requirements

AXES = ("data", "fsdp", "tensor")

# Maps logical axes of parameters and activations to mesh axes. Others are not split.
# Parameters name their axes where a module makes them, as in `models.layers.Dense`. A
# product gathers the parts of `embed` alone (`models.matmul`).
RULES = (
    ("batch", ("data", "fsdp")),
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
    ("embed", "fsdp"),
)

_MESH_AXIS = {name: axis for name, axis in RULES if isinstance(axis, str)}

# The config.model field that sets the size of a logical axis, for errors.
_FIELDS = {
    "heads": "num_attention_heads",
    "mlp": "intermediate_size",
    "embed": "hidden_size",
}


def make_mesh(
    config: ConfigDict,
    uses: Collection[str] = ("train", "evaluate"),
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Arranges devices as `config.mesh` specifies.

    Args:
      uses: Config groups whose batches must divide over it.
      devices: Devices to arrange. None means all devices.

    Raises:
      UserError: Sizes that do not multiply to the number of devices, a batch that
        does not divide over them, or an attention that these devices cannot compute.
    """
    devices = jax.devices() if devices is None else devices
    trains = "train" in uses
    requirements.check_attention(config.model, devices[0].platform, trains)
    count = len(devices)
    sizes = {axis: config.mesh[axis] for axis in AXES}
    shown = " ".join(f"{axis}={size}" for axis, size in sizes.items())
    fixed = math.prod(size for size in sizes.values() if size > 0)
    sizes = {x: count // fixed if size == -1 else size for x, size in sizes.items()}
    if min(sizes.values()) < 1 or math.prod(sizes.values()) != count:
        raise UserError(
            f"config.mesh {shown} does not fit {count} device(s): the sizes, at least "
            f"1, must multiply to {count}; one may be -1, for what is left"
        )
    _check_batches(config, uses, sizes)
    types = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh(tuple(sizes.values()), AXES, types, devices=devices)


def _check_batches(
    config: ConfigDict, uses: Collection[str], sizes: Mapping[str, int]
) -> None:
    """Checks that the batches of these config groups divide over a mesh."""
    shards = sizes["data"] * sizes["fsdp"]
    batches = {}  # rows, parts
    if "evaluate" in uses:
        batches["evaluate.batch_size"] = (config.evaluate.batch_size, 1)
    phases = phases_of(config) if "train" in uses else []
    texts = fields.task_values(config).texts_per_row
    for number, phase in enumerate(phases, 1):
        name = "train.batch_size / train.micro_batches"
        name += " / task.texts_per_row" if texts > 1 else ""
        name += f" of phase {number}" if number > 1 else ""
        batches[name] = (phase.batch_size, phase.micro_batches * texts)
    for name, (size, parts) in batches.items():
        if size < 1 or size % parts or size // parts % shards:
            raise UserError(
                f"config.{name} = {size} / {parts} does not divide over the {shards} "
                f"device(s) of mesh data={sizes['data']} fsdp={sizes['fsdp']}"
            )


def processor() -> jax.Device | None:
    """Returns the CPU device. None means that JAX_PLATFORMS leaves it out, and the
    first device is used instead."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def replicated_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding with the same array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding with rows split over the data axes."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def parameter_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Returns shardings of a tree of parameters from their logical axis names.

    A vocabulary that the tensor axis does not divide (30,522 by 4) is not split, nor is
    an array without names.

    Raises:
      UserError: The mesh does not divide another axis.
    """

    def sharding(box: Any) -> NamedSharding:
        kept: list[str | None] = []
        if not _is_boxed(box):
            return replicated_sharding(mesh)
        for size, name in zip(box.value.shape, box.names, strict=True):
            axis = _MESH_AXIS.get(name or "")
            if axis is not None and size % mesh.shape[axis]:
                if name != "vocab":
                    field = _FIELDS.get(str(name))
                    what = f"config.model.{field}" if field else f"the axis {name}"
                    raise UserError(
                        f"config.mesh.{axis}={mesh.shape[axis]} does not divide "
                        f"{what}={size}"
                    )
                axis = None
            kept.append(axis)
        return NamedSharding(mesh, PartitionSpec(*kept))

    return jax.tree.map(sharding, boxed, is_leaf=_is_boxed)


def _is_boxed(leaf: Any) -> bool:
    return isinstance(leaf, nn.LogicallyPartitioned)


def local_rows(mesh: Mesh, batch_size: int) -> RowIndex:
    """Returns the rows of a global batch that this process's devices hold, in order.

    On a TPU slice they may not be contiguous: the mesh follows the chips' links, not
    the hosts.
    """
    indices = batch_sharding(mesh).addressable_devices_indices_map((batch_size,))
    held = np.zeros(batch_size, bool)
    for index in filter(None, indices.values()):
        held[index] = True
    rows = np.flatnonzero(held)
    start, stop = int(rows[0]), int(rows[-1]) + 1
    return slice(start, stop) if len(rows) == stop - start else rows


def batch_multiple(mesh: Mesh, rows: int) -> int:
    """Rounds `rows` up to a number that divides over the data axes."""
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    return -(-rows // shards) * shards


def place_batch(
    batch: Mapping[str, np.ndarray], mesh: Mesh, batch_size: int, seeds: int = 1
) -> dict[str, jax.Array]:
    """Makes global arrays of `batch_size` rows from this process's rows.

    With several seeds, each seed has its own rows: [seeds, batch, ...].
    """
    sharding = batch_sharding(mesh)
    leading: tuple[int, ...] = ()
    if seeds > 1:
        sharding = NamedSharding(mesh, PartitionSpec(None, *sharding.spec))
        leading = (seeds,)
    return {
        name: jax.make_array_from_process_local_data(
            sharding, rows, (*leading, batch_size, *rows.shape[len(leading) + 1 :])
        )
        for name, rows in batch.items()
    }


def abstract_arrays(boxed: Any, mesh: Mesh) -> Any:
    """Returns shapes, dtypes and shardings of arrays, boxed as parameters are."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        nn.meta.unbox(boxed),
        parameter_shardings(boxed, mesh),
    )


def place_arrays(arrays: Any, shardings: Any) -> Any:
    """Puts an array, or a tree of arrays, on the devices. Each process has it whole, as
    NumPy arrays."""
    return jax.tree.map(
        lambda x, where: jax.make_array_from_callback(x.shape, where, x.__getitem__),
        arrays,
        shardings,
    )


def shardings_of(abstract: Any) -> Any:
    """Returns the shardings of a tree of arrays or of their shapes."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


@contextlib.contextmanager
def activate_mesh(mesh: Mesh) -> Iterator[None]:
    """Maps logical axis names to axes of this mesh, in this context (and thread)."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        yield


def bytes_per_device(tree: Any) -> int:
    """Counts the bytes per device of a tree of arrays, or of their shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )
