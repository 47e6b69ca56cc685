"""An activation of a linear layer's product and bias, whose gradients one GPU kernel
computes: the product's, and the bias's sums over rows.

XLA sums over rows in the same kernel, too, but reaches half of the memory's speed.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from bert_jax.models.kernels.on_mesh import on_mesh

_COLUMNS = PartitionSpec("tensor")
_ROWS = PartitionSpec(("data", "fsdp"), None, "tensor")


class Blocks(NamedTuple):
    """What a program computes, and with how many warps."""

    rows: int = 4  # at once
    columns: int = 512
    loops: int = 16  # so many times, before it writes its sums
    warps: int = 4


BLOCKS = Blocks()

Activation = Callable[[Array], Array]


def fused_activation(
    activation: Activation,
    x: Float[Array, "batch length columns"],
    bias: Float[Array, "columns"],
    *,
    interpret: bool = False,
) -> Float[Array, "batch length columns"]:
    """activation(x + bias), computed in float32.

    Args:
      activation: of float32, element by element.
      x: a linear layer's product.
      bias: that layer's bias.
      interpret: run the kernel as JAX operations; otherwise it needs a GPU.
    """
    return _activate((activation, BLOCKS, interpret), x, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _activate(setting: tuple[Activation, Blocks, bool], x: Array, bias: Array) -> Array:
    return setting[0](x.astype(jnp.float32) + bias).astype(x.dtype)


def _forward(setting: Any, x: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return _activate(setting, x, bias), (x, bias)


def _backward(
    setting: tuple[Activation, Blocks, bool],
    kept: tuple[Array, Array],
    gradient: Array,
) -> tuple[Array, Array]:
    compute = on_mesh(
        functools.partial(_backward_call, *setting),
        (_ROWS, _COLUMNS, _ROWS),
        (_ROWS, PartitionSpec(("data", "fsdp"), "tensor")),
    )
    to_x, sums = compute(*kept, gradient)
    return to_x, sums.sum(axis=0)


_activate.defvjp(_forward, _backward)


def _backward_call(
    activation: Activation,
    blocks: Blocks,
    interpret: bool,
    x: Array,
    bias: Array,
    gradient: Array,
) -> tuple[Array, Array]:
    """For one device: the gradient of x, and partial sums [programs, columns]."""
    columns = x.shape[-1]
    flat, outer = (each.reshape(-1, columns) for each in (x, gradient))
    padding = -len(flat) % blocks.rows
    if padding:
        flat, outer = (jnp.pad(each, ((0, padding), (0, 0))) for each in (flat, outer))
    width = math.gcd(columns & -columns, blocks.columns)
    count = len(flat) // blocks.rows
    loops = math.gcd(count, blocks.loops)
    programs = count // loops
    block = pl.BlockSpec((loops * blocks.rows, width), lambda i, j: (i, j))
    to_x, sums = pl.pallas_call(
        functools.partial(_backward_kernel, activation, blocks.rows),
        grid=(programs, columns // width),
        in_specs=[block, pl.BlockSpec((width,), lambda i, j: (j,)), block],
        out_specs=[block, pl.BlockSpec((None, width), lambda i, j: (i, j))],
        out_shape=[
            jax.ShapeDtypeStruct(flat.shape, x.dtype),
            jax.ShapeDtypeStruct((programs, columns), jnp.float32),
        ],
        compiler_params=triton.CompilerParams(num_warps=blocks.warps, num_stages=1),
        interpret=interpret,
        name="activation_backward",
    )(flat, bias, outer)
    rows = math.prod(x.shape[:-1])
    return to_x[:rows].reshape(x.shape), sums


def _backward_kernel(
    activation: Activation, rows: int, x, bias, gradient, to_x, sums
) -> None:
    added = bias[...][None, :]

    def add(index: Array, total: Array) -> Array:
        block = pl.ds(index * rows, rows)
        biased = x[block, :].astype(jnp.float32) + added
        _, pull = jax.vjp(activation, biased)
        (found,) = pull(gradient[block, :].astype(jnp.float32))
        to_x[block, :] = found.astype(to_x.dtype)
        return total + found

    # Summed over rows only once: a sum over rows is one over warps.
    zeros = jnp.zeros((rows, x.shape[1]), jnp.float32)
    total = jax.lax.fori_loop(0, x.shape[0] // rows, add, zeros)
    sums[...] = jnp.sum(total, axis=0)
