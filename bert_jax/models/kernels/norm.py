"""Bias, dropout, residual and LayerNorm in one GPU kernel each way.

XLA makes some ten kernels of them, each of which reads and writes whole arrays. Here
the forward pass reads two arrays and writes one. The backward pass reads three,
computes the sums again and writes two. Dropout uses the same words as `layers.dropout`,
so the same elements are dropped.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from bert_jax.models.kernels.on_mesh import IDS, on_mesh
from bert_jax.models.layers import hash_column, row_keys
from bert_jax.types import DropoutKey

_WHOLE = PartitionSpec()
_MOST_PIECES = 3  # equal slices of the columns, as in 768 = 3 x 256


class Blocks(NamedTuple):
    """The rows that a program computes, and with how many warps."""

    rows: int  # at once
    warps: int  # that compute them
    loops: int = 1  # number of times, before it writes its sums


# The fastest of some twenty on an H200, or within 4% of it
# (experiments/results/gpu.txt).
FORWARD, BACKWARD = Blocks(2, 2), Blocks(2, 2, 16)


class _Setting(NamedTuple):
    """The constants of a kernel."""

    rate: float  # dropout rate, 0 without dropout
    eps: float  # added to the variance
    interpret: bool  # run as JAX operations: for tests, on any device


def fused_norm(
    x: Float[Array, "batch length hidden"],
    bias: Float[Array, "hidden"],
    residual: Float[Array, "batch length hidden"],
    scale: Float[Array, "hidden"],
    offset: Float[Array, "hidden"],
    rate: float,
    key: DropoutKey,
    eps: float,
    positions: Int[Array, "batch length"] | None = None,
    *,
    interpret: bool = False,
) -> Float[Array, "batch length hidden"]:
    """Computes LayerNorm(residual + dropout(x + bias)) in float32.

    Args:
      x: A linear layer's product.
      bias: That layer's bias.
      scale: LayerNorm's factors.
      offset: LayerNorm's bias.
      rate: Dropout rate.
      key: Dropout key. None means evaluation.
      eps: Number added to the variance.
      positions: The rows' positions in the array of which they are a part, as in
        `layers.dropout`. None means that it is whole.
      interpret: Whether to run the kernel as JAX operations. Otherwise it needs a GPU.
    """
    words = None
    if key is not None and rate > 0.0:
        words = row_keys(key, x.shape[:-1], positions)
    setting = _Setting(rate if words else 0.0, eps, interpret)
    return _norm(setting, x, bias, residual, words, scale, offset)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _norm(setting: _Setting, *inputs: Any) -> Array:
    """Takes the same arguments as `_forward`."""
    return _forward(setting, *inputs)[0]


def _forward(
    setting: _Setting,
    x: Array,
    bias: Array,
    residual: Array,
    words: tuple[Array, Array] | None,
    scale: Array,
    offset: Array,
) -> tuple[Array, tuple]:
    compute = on_mesh(
        functools.partial(_forward_call, setting),
        (IDS, _WHOLE, IDS, IDS, _WHOLE, _WHOLE),
        (IDS, IDS, IDS),
    )
    normed, mean, inverse = compute(x, bias, residual, words, scale, offset)
    return normed, (x, bias, residual, words, scale, mean, inverse)


def _backward(setting: _Setting, kept: tuple, gradient: Array) -> tuple:
    compute = on_mesh(
        functools.partial(_backward_call, setting),
        (IDS, _WHOLE, IDS, IDS, _WHOLE, IDS, IDS, IDS),
        (IDS, IDS, IDS),
    )
    to_x, to_residual, sums = compute(*kept, gradient)
    to_offset, to_scale, to_bias = sums.sum(axis=0)
    return to_x, to_bias, to_residual, None, to_scale, to_offset


_norm.defvjp(_forward, _backward)


class _Specs:
    """The blocks that a program reads of arrays [rows, hidden], [rows] and [hidden]."""

    def __init__(self, rows: int, hidden: int):
        self.rows = pl.BlockSpec((rows, hidden), lambda i: (i, 0))
        self.row_numbers = pl.BlockSpec((rows,), lambda i: (i,))
        self.vector = pl.BlockSpec((hidden,), lambda i: (0,))


def _forward_call(
    setting: _Setting,
    x: Array,
    bias: Array,
    residual: Array,
    words: tuple[Array, Array] | None,
    scale: Array,
    offset: Array,
) -> tuple[Array, Array, Array]:
    """Computes one device's rows: [batch, length, hidden] and two [batch, length]."""
    rows, hidden = FORWARD.rows, x.shape[-1]
    flat, flat_residual, flat_words = _flatten_rows(rows, hidden, (x, residual, words))
    specs, numbers = (
        _Specs(rows, hidden),
        jax.ShapeDtypeStruct((len(flat),), jnp.float32),
    )
    results = pl.pallas_call(
        functools.partial(_forward_kernel, setting),
        grid=(len(flat) // rows,),
        in_specs=[
            *(specs.rows, specs.vector, specs.rows),
            None if words is None else (specs.row_numbers,) * 2,
            *(specs.vector, specs.vector),
        ],
        out_specs=[specs.rows, specs.row_numbers, specs.row_numbers],
        out_shape=[jax.ShapeDtypeStruct(flat.shape, x.dtype), numbers, numbers],
        compiler_params=_params(FORWARD),
        interpret=setting.interpret,
        name="norm_forward",
    )(flat, bias, flat_residual, flat_words, scale, offset)
    count = math.prod(x.shape[:-1])
    normed, mean, inverse = (each[:count] for each in results)
    batch = x.shape[:-1]
    return normed.reshape(x.shape), mean.reshape(batch), inverse.reshape(batch)


def _backward_call(
    setting: _Setting,
    x: Array,
    bias: Array,
    residual: Array,
    words: tuple[Array, Array] | None,
    scale: Array,
    mean: Array,
    inverse: Array,
    gradient: Array,
) -> tuple[Array, Array, Array]:
    """Computes for one device's rows the gradients of x and residual, and partial sums
    of the gradients of offset, scale and bias [programs, 3, hidden]."""
    rows, hidden = BACKWARD.rows, x.shape[-1]
    flat, flat_residual, flat_words, mean, inverse, gradient = _flatten_rows(
        rows, hidden, (x, residual, words, mean, inverse, gradient)
    )
    blocks = len(flat) // rows
    loops = math.gcd(blocks, BACKWARD.loops)
    programs, specs = blocks // loops, _Specs(rows * loops, hidden)
    drops = words is not None
    like_x = jax.ShapeDtypeStruct(flat.shape, x.dtype)
    *gradients, sums = pl.pallas_call(
        functools.partial(_backward_kernel, setting),
        grid=(programs,),
        in_specs=[
            *(specs.rows, specs.vector, specs.rows),
            (specs.row_numbers,) * 2 if drops else None,
            *(specs.vector, specs.row_numbers, specs.row_numbers, specs.rows),
        ],
        # Without dropout both gradients are one.
        out_specs=[
            *(specs.rows,) * (1 + drops),
            pl.BlockSpec((None, 3, hidden), lambda i: (i, 0, 0)),
        ],
        out_shape=[
            *(like_x,) * (1 + drops),
            jax.ShapeDtypeStruct((programs, 3, hidden), jnp.float32),
        ],
        compiler_params=_params(BACKWARD),
        interpret=setting.interpret,
        name="norm_backward",
    )(flat, bias, flat_residual, flat_words, scale, mean, inverse, gradient)
    count = math.prod(x.shape[:-1])
    to_residual, to_x = (
        each[:count].reshape(x.shape) for each in (gradients[0], gradients[-1])
    )
    return to_x, to_residual, sums


def _flatten_rows(rows: int, hidden: int, arrays: tuple) -> Any:
    """Flattens [batch, length, hidden] to [n, hidden], padded so `rows` divides n."""

    def flatten(x: Array) -> Array:
        x = x.reshape(-1, hidden) if x.ndim == 3 else x.reshape(-1)
        padding = -len(x) % rows
        return jnp.pad(x, ((0, padding), *((0, 0),) * (x.ndim - 1))) if padding else x

    return jax.tree.map(flatten, arrays)


def _params(blocks: Blocks) -> triton.CompilerParams:
    return triton.CompilerParams(num_warps=blocks.warps, num_stages=1)


def _blocks(hidden: int) -> list[Any]:
    """Returns slices of the columns, because sizes of Triton's arrays are powers of 2.

    They are equal where they are few. Otherwise there is one for each bit of `hidden`,
    because compiling 39 slices of 8 columns takes minutes.
    """
    size = hidden & -hidden
    sizes = [size] * (hidden // size)
    if len(sizes) > _MOST_PIECES:
        bits = reversed(range(hidden.bit_length()))
        sizes = [1 << bit for bit in bits if hidden >> bit & 1]
    starts = itertools.accumulate(sizes, initial=0)
    return [pl.ds(*piece) for piece in zip(starts, sizes, strict=False)]


def _sum(
    setting: _Setting, x: Array, bias: Array, residual: Array, words: Any, columns: Any
) -> tuple[Array, Array | None]:
    """Returns residual + dropout(x + bias) in float32, and dropout's factors."""
    biased, factors = x.astype(jnp.float32) + bias[None, :], None
    if words is not None:
        rate = setting.rate
        numbers = (columns.start + jnp.arange(columns.size)).astype(jnp.uint32)
        bits = hash_column(words[0][:, None], words[1][:, None], numbers[None, :])
        is_kept = bits >= jnp.uint32(round(rate * 2**32))
        factors = jnp.where(is_kept, 1.0 / (1.0 - rate), 0.0)
        biased *= factors
    return biased + residual.astype(jnp.float32), factors


def _forward_kernel(
    setting: _Setting, x, bias, residual, words, scale, offset, normed, mean, inverse
) -> None:
    hidden = x.shape[1]
    pieces = _blocks(hidden)
    own_words = None if words is None else (words[0][...], words[1][...])
    sums = [
        _sum(setting, x[:, at], bias[at], residual[:, at], own_words, at)[0]
        for at in pieces
    ]
    average = sum(jnp.sum(part, axis=1) for part in sums) / hidden
    centered = [part - average[:, None] for part in sums]
    variance = sum(jnp.sum(part * part, axis=1) for part in centered) / hidden
    factor = jax.lax.rsqrt(variance + setting.eps)
    for at, part in zip(pieces, centered, strict=True):
        scaled = part * (factor[:, None] * scale[at][None, :]) + offset[at][None, :]
        normed[:, at] = scaled.astype(normed.dtype)
    mean[...] = average
    inverse[...] = factor


def _backward_kernel(
    setting: _Setting,
    x,
    bias,
    residual,
    words,
    scale,
    mean,
    inverse,
    gradient,
    *outputs,
) -> None:
    *gradients, sums = outputs
    rows, hidden = BACKWARD.rows, x.shape[1]
    pieces = _blocks(hidden)

    def add(index: Array, totals: tuple) -> tuple:
        block = pl.ds(index * rows, rows)
        own_words = None if words is None else (words[0][block], words[1][block])
        average, factor = mean[block][:, None], inverse[block][:, None]
        found, after = [], []
        for at, (to_offset, to_scale, _) in zip(pieces, totals, strict=True):
            given = (x[block, at], bias[at], residual[block, at], own_words)
            summed, kept = _sum(setting, *given, at)
            outer = gradient[block, at].astype(jnp.float32)
            normed = (summed - average) * factor
            found.append((normed, outer * scale[at][None, :], kept))
            after.append([to_offset + outer, to_scale + outer * normed])
        inner_mean = sum(jnp.sum(inner, axis=1) for _, inner, _ in found) / hidden
        along = sum(jnp.sum(inner * part, axis=1) for part, inner, _ in found) / hidden
        for at, (normed, inner, kept), sums_after, (*_, to_bias) in zip(
            pieces, found, after, totals, strict=True
        ):
            to_sum = (inner - inner_mean[:, None] - normed * along[:, None]) * factor
            to_x = to_sum if kept is None else to_sum * kept
            for output, value in zip(gradients, (to_sum, to_x), strict=False):
                output[block, at] = value.astype(output.dtype)
            sums_after.append(to_bias + to_x)
        return tuple(map(tuple, after))

    # Summed over rows only once: a sum over rows is one over warps.
    zeros = tuple((jnp.zeros((rows, at.size), jnp.float32),) * 3 for at in pieces)
    totals = jax.lax.fori_loop(0, x.shape[0] // rows, add, zeros)
    for at, parts in zip(pieces, totals, strict=True):
        for row, part in enumerate(parts):
            sums[row, at] = jnp.sum(part, axis=0)
