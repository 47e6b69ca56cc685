"""An activation of a linear layer's product and bias, whose gradients one GPU kernel
computes: the product's, and the bias's sums over rows.

XLA sums over rows in the same kernel, too, but reaches half of the memory's speed.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from bert_jax.models.kernels.on_mesh import on_mesh
from bert_jax.models.layers import ACTIVATION_FUNCTIONS

_COLUMNS = PartitionSpec("tensor")
_ROWS = PartitionSpec(("data", "fsdp"), None, "tensor")
# A program's rows at a time, columns, iterations before it writes its sums, and warps.
# The fastest of eight on an H200 (experiments/results/gpu.txt).
_BLOCK_ROWS, _BLOCK_COLUMNS, _LOOPS, _WARPS = 8, 512, 16, 8

# 1 - erf(z) = polynomial(1 / (1 + _STEP z)) exp(-z^2) for z >= 0, within 1.5e-7
# (Abramowitz and Stegun 1964, 7.1.26). Triton has no erf.
_STEP = 0.3275911
_COEFFICIENTS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the normal distribution function plus x times its density."""
    density = jnp.exp(-0.5 * x * x)
    t = 1.0 / (1.0 + (_STEP / math.sqrt(2.0)) * jnp.abs(x))
    polynomial = jnp.zeros_like(x)
    for coefficient in _COEFFICIENTS:
        polynomial = (polynomial + coefficient) * t
    tail = 0.5 * polynomial * density
    below = jnp.where(x < 0.0, tail, 1.0 - tail)
    return below + x * density / math.sqrt(2.0 * math.pi)


def _gelu_tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    factor, cubic = math.sqrt(2.0 / math.pi), 0.044715
    inner = factor * (x + cubic * x * x * x)
    # tanh and 1 - tanh^2 without a difference of near numbers.
    power = jnp.exp(-2.0 * jnp.abs(inner))
    below = jnp.where(inner < 0.0, power, 1.0) / (1.0 + power)
    slope = 2.0 * power / ((1.0 + power) * (1.0 + power))
    return below + x * slope * factor * (1.0 + 3.0 * cubic * x * x)


DERIVATIVES = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": lambda x: jnp.where(x > 0.0, 1.0, 0.0),
}


def fused_activation(
    name: str,
    x: Float[Array, "batch length columns"],
    bias: Float[Array, "columns"],
    *,
    interpret: bool = False,
) -> Float[Array, "batch length columns"]:
    """Computes activation(x + bias) in float32.

    Args:
      name: Name in ACTIVATION_FUNCTIONS.
      x: A linear layer's product.
      bias: That layer's bias.
      interpret: Whether to run the kernel as JAX operations. Otherwise it needs a GPU.
    """
    return _activate(name, interpret, x, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _activate(name: str, interpret: bool, x: Array, bias: Array) -> Array:
    biased = x.astype(jnp.float32) + bias
    return ACTIVATION_FUNCTIONS[name](biased).astype(x.dtype)


def _forward(name: str, interpret: bool, x: Array, bias: Array) -> tuple:
    return _activate(name, interpret, x, bias), (x, bias)


def _backward(
    name: str, interpret: bool, kept: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    compute = on_mesh(
        functools.partial(_backward_call, name, interpret),
        (_ROWS, _COLUMNS, _ROWS),
        (_ROWS, PartitionSpec(("data", "fsdp"), "tensor")),
    )
    to_x, sums = compute(*kept, gradient)
    return to_x, sums.sum(axis=0)


_activate.defvjp(_forward, _backward)


def _backward_call(
    name: str, interpret: bool, x: Array, bias: Array, gradient: Array
) -> tuple[Array, Array]:
    """Computes one device's gradient of x, and partial sums [programs, columns]."""
    columns = x.shape[-1]
    flat, outer = (each.reshape(-1, columns) for each in (x, gradient))
    padding = -len(flat) % _BLOCK_ROWS
    if padding:
        flat, outer = (jnp.pad(each, ((0, padding), (0, 0))) for each in (flat, outer))
    width = math.gcd(columns & -columns, _BLOCK_COLUMNS)
    count = len(flat) // _BLOCK_ROWS
    loops = math.gcd(count, _LOOPS)
    programs = count // loops
    block = pl.BlockSpec((loops * _BLOCK_ROWS, width), lambda i, j: (i, j))
    to_x, sums = pl.pallas_call(
        functools.partial(_backward_kernel, DERIVATIVES[name]),
        grid=(programs, columns // width),
        in_specs=[block, pl.BlockSpec((width,), lambda i, j: (j,)), block],
        out_specs=[block, pl.BlockSpec((None, width), lambda i, j: (i, j))],
        out_shape=[
            jax.ShapeDtypeStruct(flat.shape, x.dtype),
            jax.ShapeDtypeStruct((programs, columns), jnp.float32),
        ],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name="activation_backward",
    )(flat, bias, outer)
    rows = math.prod(x.shape[:-1])
    return to_x[:rows].reshape(x.shape), sums


def _backward_kernel(
    derivative: Callable[[Array], Array], x, bias, gradient, to_x, sums
) -> None:
    added, rows = bias[...][None, :], _BLOCK_ROWS

    def add(index: Array, total: Array) -> Array:
        block = pl.ds(index * rows, rows)
        slope = derivative(x[block, :].astype(jnp.float32) + added)
        found = slope * gradient[block, :].astype(jnp.float32)
        to_x[block, :] = found.astype(to_x.dtype)
        return total + found

    # Summed over rows only once: a sum over rows is one over warps.
    zeros = jnp.zeros((rows, x.shape[1]), jnp.float32)
    total = jax.lax.fori_loop(0, x.shape[0] // rows, add, zeros)
    sums[...] = jnp.sum(total, axis=0)
