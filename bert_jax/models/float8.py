"""Linear layers whose products multiply numbers of 8 bits (Micikevicius et al. 2022,
arXiv:2209.05433).

Inputs and kernels are rounded to E4M3 and gradients to E5M2, each array after a
multiplication by a power of 2 that brings its largest number near the format's largest.
For a kernel that number is known. For inputs and gradients it is the largest of the
last `HISTORY` steps (delayed scaling), so that an array is read once.

The largest numbers are arrays beside the kernels, `amax` [2, HISTORY], first those of
the inputs, then those of the gradients, newest first. They are no parameters:
`training.step` adds them to those of a step that trains. Without them a layer computes
in `config.dtype`. A layer that is applied several times in a step, as ALBERT's is, gets
the sum of its largest numbers, which is large enough for each.

An array is rounded and multiplied back, and XLA's GPU compiler turns the product of two
such arrays into one of 8 bits. Other compilers multiply the rounded numbers in the
arrays' dtype, which loses nothing.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from bert_jax.errors import UserError
from bert_jax.models import matmul
from bert_jax.types import Params

HISTORY = 16
NAME = "amax"
_FORWARD, _BACKWARD = jnp.float8_e4m3fn, jnp.float8_e5m2


class _Rounded(NamedTuple):
    """An array of 8 bits times a power of 2."""

    numbers: Float[Array, "..."]
    scale: Float[Array, ""]  # float32

    def restore(self, dtype: DTypeLike) -> Float[Array, "..."]:
        return self.numbers.astype(dtype) * self.scale.astype(dtype)


def _round(x: Array, most: Float[Array, ""], dtype: DTypeLike) -> _Rounded:
    """Rounds an array whose largest number is expected to be `most`. Larger numbers
    become the format's largest."""
    limit = float(jnp.finfo(dtype).max)
    usable = (most > 0) & jnp.isfinite(most)
    # At least 2^-100, so that neither this nor its inverse is 0 or infinite.
    _, exponent = jnp.frexp(jnp.clip(most / limit, 2.0**-100, 2.0**100))
    scale = jnp.where(usable, jnp.ldexp(jnp.float32(1), exponent), 1.0)
    scaled = x * (1 / scale).astype(x.dtype)
    return _Rounded(jnp.clip(scaled, -limit, limit).astype(dtype), scale)


def _largest(x: Array) -> Float[Array, ""]:
    return jnp.max(jnp.abs(x)).astype(jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(
    names: tuple[str | None, ...],
    x: Float[Array, "..."],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."],
    amax: Float[Array, "2 history"],
) -> Float[Array, "..."]:
    """Computes what `matmul.linear` does, of rounded numbers.

    The gradient of `amax` holds the largest numbers of this step at index 0.
    """
    return _forward(names, x, kernel, bias, amax)[0]


def _forward(
    names: tuple[str | None, ...], x: Array, kernel: Array, bias: Array, amax: Array
) -> tuple[Array, tuple]:
    inputs = _round(x, jnp.max(amax[0]), _FORWARD)
    weights = _round(kernel, _largest(kernel), _FORWARD)
    given = inputs.restore(x.dtype), weights.restore(x.dtype), bias
    return matmul.linear(names, *given), (inputs, weights, bias, amax, _largest(x))


def _backward(names: tuple[str | None, ...], kept: tuple, gradient: Array) -> tuple:
    inputs, weights, bias, amax, most = kept
    outer = _round(gradient, jnp.max(amax[1]), _BACKWARD).restore(gradient.dtype)
    arrays = inputs.restore(gradient.dtype), weights.restore(gradient.dtype), bias
    with jax.default_matmul_precision("highest"):  # no fast sums of few bits
        to_x, to_kernel, _ = matmul.linear_gradients(names, arrays, outer)
    to_bias = jnp.sum(gradient.reshape(-1, bias.size), axis=0, dtype=jnp.float32)
    found = jnp.zeros_like(amax).at[:, 0].set(jnp.stack([most, _largest(gradient)]))
    return to_x, to_kernel, to_bias.reshape(bias.shape), found


linear.defvjp(_forward, _backward)


def init_amax(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `amax` of 0 for each of the encoder's kernels, at the kernel's path.

    Args:
      params: A model's parameters, or their shapes.

    Raises:
      UserError: Its encoder has no kernels.
    """
    kernels = {
        path: x.shape
        for path, x in flatten_dict(params).items()
        if path[-1] == "kernel" and "encoder" in path
    }
    if not kernels:
        raise UserError(
            "config.model.products=fp8: this model's encoder has no matrix products "
            "in 8 bits; set it to dtype"
        )
    found = {}
    for path, shape in kernels.items():
        layers = shape[:1] if "layers" in path else ()
        found[*path[:-1], NAME] = jnp.zeros((*layers, 2, HISTORY))
    return unflatten_dict(found)


def split_amax(tree: Params) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a tree's other leaves, and its `amax`."""
    flat = flatten_dict(tree)
    amax = {path: flat.pop(path) for path in [*flat] if path[-1] == NAME}
    return unflatten_dict(flat), unflatten_dict(amax)


def next_amax(amax: Any, found: Any) -> Any:
    """Returns the largest numbers of the last steps, with those of this step.

    Args:
      found: Gradients of `amax`.
    """

    def put(before: Array, now: Array) -> Array:
        return jnp.concatenate([now[..., :1], before[..., :-1]], axis=-1)

    return jax.tree.map(put, amax, found)
