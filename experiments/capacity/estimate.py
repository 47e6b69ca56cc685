"""Bytes of a training step, from shapes alone.

What autodiff keeps for the backward pass is traced (`jax.eval_shape` of `jax.vjp`), for
one and two layers and for two numbers of rows, and multiplied out. No array is made.
"""

import collections
import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.models.kernels import requirements
from bert_jax.training import optimizer, sharding
from bert_jax.training.sharding import bytes_per_device
from bert_jax.training.step import TrainState, abstract_state
from experiments.lib import programs

NO_REMAT = "none"  # of config.model.remat

# Arrays of a layer that autodiff keeps and the compiler does not, found by compiling
# (`plan --compile`): dropout's masks, each LayerNorm's three in float32, and of the
# attention's two of length x length in float32 one or both. (Without dropout there is
# one, which stays where one of two does.) In a loop over the layers the compiler sees
# one layer at a time.
_COMPUTED_AGAIN: dict[str, dict[str, int]] = {
    "tpu": {"masks": 3, "norms": 6, "scores": 2},
    "tpu, scanned": {"scores": 1},
    "cuda": {"masks": 3, "norms": 6, "scores": 1},
    "cuda, scanned": {"scores": 1},
}


class Line(NamedTuple):
    """A number, and the formula that it is from."""

    name: str
    value: float
    formula: str


def mesh_of(config: ConfigDict, kind: str) -> Mesh:
    """Returns the config's mesh of the available devices, which represent a kind's.

    Raises:
      UserError: It does not fit them, or they do not have the config's attention.
    """
    platform = "gpu" if kind == "cuda" else kind
    requirements.check_attention(config.model, platform, trains=True)
    # The simulated devices, of another kind, have no kernels.
    plain = {"model.attention": "einsum", "model.epilogue": "xla"}
    return sharding.make_mesh(fields.with_values(config, plain))


def state(config: ConfigDict, mesh: Mesh) -> TrainState:
    """Returns shapes and shardings of parameters and optimizer state."""
    return _state(config.to_json(), mesh)


@functools.cache
def _state(config: str, mesh: Mesh) -> TrainState:
    own = ConfigDict(json.loads(config))
    return abstract_state(programs.task_of(own), optimizer.make_optimizer(own), mesh)


def memory(config: ConfigDict, mesh: Mesh, index: int, kind: str = "") -> list[Line]:
    """Returns the bytes of each device while a step of a phase runs.

    Args:
      index: Index of the training's phase.
      kind: Kind of the device, as in `devices`. Empty means that all arrays that are
        traced are kept.
    """
    phase = programs.task_of(config).phases()[index]
    own = state(config, mesh)
    fsdp, tensor = mesh.shape["fsdp"], mesh.shape["tensor"]
    params = bytes_per_device(own.params)
    rows = phase.batch_size // (mesh.shape["data"] * fsdp) // phase.micro_batches
    lines = [
        Line("parameters", params, "4 bytes each / fsdp / tensor, where they divide"),
        Line("optimizer", bytes_per_device(own.opt_state), "4 bytes for each moment"),
        Line(
            "gradients",
            params * (1 if phase.micro_batches == 1 else 3 if kind else 2),
            "as the parameters; with micro-batches their sum too"
            + (", before and after" if kind else ""),
        ),
        Line(
            "activations",
            rows * activations(config, index, tensor, kind),
            f"{rows} rows x what autodiff keeps of one (traced)"
            + (", less what the compiler computes again" if kind else ""),
        ),
    ]
    if kind == "tpu" and config.model.scan_layers and _share(config) < 1:
        layers = config.model.num_hidden_layers * layer_parameters(config)
        formula = "2 bytes each, copied before the loop over the layers, / tensor"
        lines.append(Line("kernels", layers * _share(config) / fsdp / tensor, formula))
    if fsdp > 1:
        table = 4 * config.model.vocab_size * config.model.hidden_size
        held = (table + 2 * _share(config) * layer_parameters(config)) / tensor
        formula = "put together for use: the embeddings and two layers, / tensor"
        if not config.model.scan_layers:
            leaves = jax.tree.leaves(own.params)
            split = [leaf for leaf in leaves if "fsdp" in leaf.sharding.spec]
            held = bytes_per_device(split) * (fsdp - 1) * _share(config)
            formula = "all parameters, put together once (with scan_layers: by layer)"
        lines.append(Line("gathered", held, formula))
    return lines


def activations(config: ConfigDict, index: int, tensor: int, kind: str = "") -> float:
    """Returns bytes that one row of a batch takes on each device until the backward
    pass.

    With `remat`, and on a TPU in a loop over the layers, one layer's are also
    there for a while. The compilers for accelerators compute some arrays again rather
    than keep them.
    """
    remat = config.model.remat
    scanned = bool(kind and config.model.scan_layers)
    again = _COMPUTED_AGAIN.get(f"{kind}, scanned" if scanned else kind, {})
    if remat != NO_REMAT:
        again = {}
    if again.get("scores") == 1 and not config.model.attention_probs_dropout_prob:
        again = again | {"scores": 0}

    length = programs.task_of(config).phases()[index].shapes["input_ids"][-1]

    def kept(layers: int, remat: Any, loop: bool = False) -> float:
        sizes = collections.defaultdict[str, list[float]](list)
        for shape, dtype, size in _kept(_small(config, layers, remat, loop), index):
            share = tensor if _is_split(shape, config, tensor) else 1
            sizes[_what(shape, dtype, config, length)].append(size / share)
        for what, count in again.items():
            # First those of whole layers, then as many of the last, which is perhaps
            # narrower.
            del sizes[what][: count * (layers if loop else layers - 1)]
            if count and not loop:
                del sizes[what][-count:]
        return sum(map(sum, sizes.values()))

    # In a loop the last layer is as the others. All of these are traced without one.
    others = (config.model.num_hidden_layers - 1) * (kept(2, remat) - kept(1, remat))
    total = kept(1, remat, config.model.scan_layers) + others
    if remat != NO_REMAT or (scanned and kind == "tpu"):
        total += kept(2, NO_REMAT) - kept(1, NO_REMAT)
    return total


def _small(config: ConfigDict, layers: int, remat: Any, loop: bool = False) -> str:
    # What one row takes does not depend on these: traced once for all.
    same = {"train.micro_batches": 1, "phase2.micro_batches": 1}
    same |= {"mesh.data": -1, "mesh.fsdp": 1, "mesh.tensor": 1}
    own = {"model.num_hidden_layers": layers, "model.scan_layers": loop}
    own |= {"model.remat": remat}
    text: str = fields.with_values(config, {**same, **own}).to_json()
    return text


@functools.cache
def _kept(config: str, index: int) -> list[tuple[tuple, str, float]]:
    """Returns shapes, dtypes and bytes for each row of a model's arrays for backward.

    The shapes are without a loop's axis.

    Args:
      index: Index of the training's phase.
    """
    task = programs.task_of(ConfigDict(json.loads(config)))
    params = nn.meta.unbox(task.param_shapes)
    phase = task.phases()[index]

    def pullback(params: Any, batch: Mapping[str, Any], key: Any) -> Any:
        def loss(params: Any) -> Any:
            return sum(task.loss(params, batch, key).values())

        return jax.vjp(loss, params)[1]

    key = jax.eval_shape(lambda: jax.random.key(0))
    two, three = (
        jax.tree.leaves(
            jax.eval_shape(pullback, params, programs.columns(task, phase, n), key)
        )
        for n in (2, 3)
    )

    # Arrays that do not grow with the rows are the parameters'. Those that do not begin
    # with them have the layers first.
    return [
        (
            less.shape[less.shape[0] == more.shape[0] :],
            str(less.dtype),
            (more.size - less.size) * less.dtype.itemsize,
        )
        for less, more in zip(two, three, strict=True)
        if more.size > less.size
    ]


def _what(shape: tuple[int, ...], dtype: str, config: ConfigDict, length: int) -> str:
    """Returns the kind of an array, as in `_COMPUTED_AGAIN`."""
    if dtype == "bool":
        return "masks"
    if dtype == "float32" and len(shape) == 4 and shape[-1] == length:
        return "scores"  # the last layer's may be of fewer queries
    if dtype == "float32" and shape[-1] == config.model.hidden_size:
        return "norms"
    return ""


def _is_split(shape: tuple[int, ...], config: ConfigDict, tensor: int) -> bool:
    """Whether the tensor axis splits an array: by heads, inner size or vocabulary."""
    model = config.model
    heads = len(shape) == 4 and model.num_attention_heads in shape[1:3]
    inner = shape[-1] == model.intermediate_size != model.hidden_size
    vocabulary = shape[-1] == model.vocab_size and model.vocab_size % tensor == 0
    return heads or inner or vocabulary


def _share(config: ConfigDict) -> float:
    """Returns the fraction of a parameter's four bytes in which it is put together."""
    return jnp.dtype(config.model.dtype).itemsize / 4


def layer_parameters(config: ConfigDict) -> int:
    """Returns the bytes of one layer's parameters."""
    hidden, inner = config.model.hidden_size, config.model.intermediate_size
    return 4 * (4 * hidden * hidden + 2 * hidden * inner + 9 * hidden + inner)
