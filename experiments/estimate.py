"""Bytes, FLOPs and traffic of a pre-training step, from shapes alone.

What autodiff keeps for the backward pass is traced (`jax.eval_shape` of `jax.vjp`), for
one and two layers and for two numbers of rows, and multiplied out; no array is made.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import tasks
from bert_jax.tasks.task import Task
from bert_jax.training import optimizer, sharding
from bert_jax.training.memory import bytes_per_device
from bert_jax.training.step import TrainState

# Values of config.model.remat.
NO_REMAT, FULL_REMAT = "none", "full"


@dataclasses.dataclass(frozen=True)
class Line:
    """A number, and the formula that it is from."""

    name: str
    value: float
    formula: str


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps of one length."""

    steps: int
    batch: int  # sequences of a step, over all devices
    length: int
    predictions: int
    parts: int  # micro-batches
    pairs: int = 0  # of a packed row; 0: not packed


def phases(task: Task) -> list[Phase]:
    """The phases of a pre-training run."""
    found = []
    for own in task.phases():
        batch, length = own.shapes["input_ids"]
        predictions = own.shapes["masked_lm_positions"][1]
        pairs = own.shapes.get("cls_positions", (0, 0))[1]
        parts = own.micro_batches
        found.append(Phase(own.steps, batch, length, predictions, parts, pairs))
    return found


def state(config: ConfigDict, mesh: Mesh) -> TrainState:
    """Shapes and shardings of parameters and optimizer state."""
    return _state(config.to_json(), mesh)


@functools.cache
def _state(config: str, mesh: Mesh) -> TrainState:
    own = ConfigDict(json.loads(config))
    task = tasks.create(own)
    moments = own.mesh.optimizer
    return sharding.abstract_state(task.init_params, optimizer.make(own), mesh, moments)


def _split_bytes(params: Any) -> int:
    """Bytes of one device's part of the parameters that fsdp splits."""
    leaves = jax.tree.leaves(params)
    return bytes_per_device([x for x in leaves if "fsdp" in x.sharding.spec])


def batch_shapes(rows: int, phase: Phase) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch of pre-training."""

    def whole(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, *shape), jnp.int32)

    weights = jax.ShapeDtypeStruct((rows, phase.predictions), jnp.float32)
    tokens, chosen = whole(phase.length), whole(phase.predictions)
    packed: dict[str, jax.ShapeDtypeStruct] = {}
    if phase.pairs:
        packed = dict.fromkeys(("sequence_ids", "position_ids"), tokens)
        packed["cls_positions"] = whole(phase.pairs)
    return {
        **packed,
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), tokens),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), chosen),
        "masked_lm_weights": weights,
        "next_sentence_labels": whole(*([phase.pairs] if phase.pairs else [])),
    }


def memory(config: ConfigDict, mesh: Mesh, phase: Phase) -> list[Line]:
    """Bytes of each device while a step runs."""
    own = state(config, mesh)
    fsdp, tensor = mesh.shape["fsdp"], mesh.shape["tensor"]
    params = bytes_per_device(own.params)
    rows = phase.batch // (mesh.shape["data"] * fsdp) // phase.parts
    lines = [
        Line("parameters", params, "4 bytes each / fsdp / tensor, where they divide"),
        Line("optimizer", bytes_per_device(own.opt_state), "4 bytes for each moment"),
        Line(
            "gradients",
            params * (2 if phase.parts > 1 else 1),
            "as the parameters; with micro-batches their sum too",
        ),
        Line(
            "activations",
            rows * activations(config, phase, tensor),
            f"{rows} rows x what autodiff keeps of one (traced)",
        ),
    ]
    if fsdp > 1:
        table = 4 * config.model.vocab_size * config.model.hidden_size
        held = (table + 2 * _share(config) * layer_parameters(config)) / tensor
        formula = "put together for use: the embeddings and two layers, / tensor"
        if not config.model.scan_layers:
            held = _split_bytes(own.params) * (fsdp - 1) * _share(config)
            formula = "all parameters, put together once (with scan_layers: by layer)"
        lines.append(Line("gathered", held, formula))
    return lines


def activations(config: ConfigDict, phase: Phase, tensor: int) -> float:
    """Bytes that one row of a batch takes on each device until the backward pass.

    With recomputation, one layer's are there for a while besides.
    """

    def kept(layers: int, remat: Any) -> float:
        small = _small(config, layers, remat)
        traced = _kept(small, phase.length, phase.predictions, phase.pairs)
        return sum(
            size / (tensor if _is_split(shape, config, phase, tensor) else 1)
            for shape, size in traced
        )

    remat = config.model.remat
    one, two = kept(1, remat), kept(2, remat)
    total = one + (config.model.num_hidden_layers - 1) * (two - one)
    if remat != NO_REMAT:
        total += kept(2, NO_REMAT) - kept(1, NO_REMAT)
    return total


def _small(config: ConfigDict, layers: int, remat: Any) -> str:
    own = config.copy_and_resolve_references()
    own.model.num_hidden_layers = layers
    own.model.scan_layers = False
    own.model.remat = remat
    return own.to_json()


@functools.cache
def _kept(
    config: str, length: int, predictions: int, pairs: int
) -> list[tuple[tuple, float]]:
    """Shapes, and bytes for each row, of what the backward pass of a model needs."""
    task = tasks.create(ConfigDict(json.loads(config)))
    params = jax.eval_shape(lambda: nn.meta.unbox(task.init_params(jax.random.key(0))))
    phase = Phase(1, 0, length, predictions, 1, pairs)

    def pullback(params: Any, batch: Mapping[str, Any], key: Any) -> Any:
        def loss(params: Any) -> Any:
            return sum(task.loss(params, batch, key).values())

        return jax.vjp(loss, params)[1]

    key = jax.eval_shape(lambda: jax.random.key(0))
    two, three = (
        jax.tree.leaves(jax.eval_shape(pullback, params, batch_shapes(n, phase), key))
        for n in (2, 3)
    )
    # What does not grow with the rows is the parameters'.
    return [
        (less.shape, (more.size - less.size) * less.dtype.itemsize)
        for less, more in zip(two, three, strict=True)
        if more.size > less.size
    ]


def _is_split(
    shape: tuple[int, ...], config: ConfigDict, phase: Phase, tensor: int
) -> bool:
    """Whether the tensor axis splits an array: by heads, inner size or vocabulary."""
    model = config.model
    heads = len(shape) == 4 and model.num_attention_heads in shape[1:3]
    inner = shape[-1] == model.intermediate_size != model.hidden_size
    vocabulary = shape[-1] == model.vocab_size and model.vocab_size % tensor == 0
    return heads or inner or vocabulary


def _share(config: ConfigDict) -> float:
    """Of a parameter's four bytes, those in which it is put together."""
    return jnp.dtype(config.model.dtype).itemsize / 4


def layer_parameters(config: ConfigDict) -> int:
    """Bytes of one layer's."""
    hidden, inner = config.model.hidden_size, config.model.intermediate_size
    return 4 * (4 * hidden * hidden + 2 * hidden * inner + 9 * hidden + inner)


def traffic(config: ConfigDict, mesh: Mesh, phase: Phase) -> list[Line]:
    """Bytes that each device sends in a step over each axis, by rings."""
    own = state(config, mesh)
    data, fsdp, tensor = (mesh.shape[axis] for axis in sharding.AXES)
    split = _split_bytes(own.params)
    rest = bytes_per_device(own.params) - split
    again = config.model.remat != NO_REMAT
    # Unrolled layers' parameters are put together once, before the first part.
    gathers = (2 + again) * phase.parts if config.model.scan_layers else 1
    rows = phase.batch // (data * fsdp)
    itemsize = jnp.dtype(config.model.dtype).itemsize
    hidden = rows * phase.length * config.model.hidden_size * itemsize
    # Forward after attention and feed-forward; backward before their first products,
    # of which attention has three.
    sums = (2 + 4 + 2 * again) * config.model.num_hidden_layers + 2
    return [
        Line(
            "data",
            2 * (data - 1) / data * phase.parts * bytes_per_device(own.params),
            "2 (n-1)/n x gradients x parts",
        ),
        Line(
            "fsdp",
            (fsdp - 1) * (gathers * _share(config) + phase.parts) * split
            + 2 * (fsdp - 1) / fsdp * phase.parts * rest,
            f"(n-1)/n x parameters x {gathers + phase.parts}: put together {gathers} "
            f"time(s) in {config.model.dtype}, gradients added and split {phase.parts}",
        ),
        Line(
            "tensor",
            2 * (tensor - 1) / tensor * hidden * sums,
            f"2 (n-1)/n x rows x length x hidden x {itemsize} bytes x {sums} sums",
        ),
    ]
