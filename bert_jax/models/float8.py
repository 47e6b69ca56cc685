"""Linear layers whose products multiply numbers of 8 bits (Micikevicius et al. 2022,
arXiv:2209.05433).

Inputs and kernels are rounded to E4M3 and gradients to E5M2, each array after a
division by a power of 2, its scale, that brings its largest number near the format's
largest. For a kernel that number is known. For inputs and gradients it is the largest
of the last `HISTORY` steps (delayed scaling), so that an array is read once.

A training step adds the scales to the parameters, as `scales` [2] beside a kernel: of
the inputs and of the gradients. Without them a layer computes in `config.dtype`. The
gradient of `scales` holds the largest numbers of the step. A layer that is applied
several times in a step, as ALBERT's is, gets their sum, which is large enough for each.

An array is rounded and multiplied back, and XLA's GPU compiler turns the product of two
such arrays into one of 8 bits. Other compilers multiply the rounded numbers in the
arrays' dtype, which loses nothing.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from bert_jax.errors import UserError
from bert_jax.models import matmul
from bert_jax.types import Params

HISTORY = 16
NAME = "scales"
_FORWARD, _BACKWARD = jnp.float8_e4m3fn, jnp.float8_e5m2


def power_of_2(
    largest: Float[Array, "*shape"], dtype: DTypeLike
) -> Float[Array, "*shape"]:
    """Returns the scale of an array whose largest number is expected to be `largest`,
    and 1 for 0 or no finite number."""
    usable = (largest > 0) & jnp.isfinite(largest)
    # Neither the scale nor its inverse is 0 or infinite.
    quotient = jnp.clip(largest / float(jnp.finfo(dtype).max), 2.0**-100, 2.0**100)
    _, exponent = jnp.frexp(quotient)
    return jnp.where(usable, jnp.ldexp(jnp.float32(1), exponent), 1.0)


def _round(x: Array, scale: Float[Array, ""], dtype: DTypeLike) -> Array:
    """Rounds an array to 8 bits. Larger numbers become the format's largest one."""
    limit = float(jnp.finfo(dtype).max)
    scaled = x * (1 / scale).astype(x.dtype)
    return jnp.clip(scaled, -limit, limit).astype(dtype)


def _restore(numbers: Array, scale: Float[Array, ""], dtype: DTypeLike) -> Array:
    return numbers.astype(dtype) * scale.astype(dtype)


def _largest(x: Array) -> Float[Array, ""]:
    return jnp.max(jnp.abs(x)).astype(jnp.float32)


def _round_and_measure(
    x: Array, scale: Float[Array, ""], dtype: DTypeLike
) -> tuple[Array, Float[Array, ""]]:
    """Returns the rounded array, and the largest number of `x`."""
    # A GPU computes both in one pass. By itself, XLA reads `x` for each.
    return jax.lax.optimization_barrier((_round(x, scale, dtype), _largest(x)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(
    names: tuple[str | None, ...],
    x: Float[Array, "..."],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."],
    scales: Float[Array, "2"],
) -> Float[Array, "..."]:
    """Computes what `matmul.linear` does, of rounded numbers."""
    return _forward(names, x, kernel, bias, scales)[0]


def _forward(
    names: tuple[str | None, ...], x: Array, kernel: Array, bias: Array, scales: Array
) -> tuple[Array, tuple]:
    of_kernel = power_of_2(_largest(kernel), _FORWARD)
    weights = _round(kernel, of_kernel, _FORWARD)
    inputs, largest = _round_and_measure(x, scales[0], _FORWARD)
    product = matmul.linear(
        names,
        _restore(inputs, scales[0], x.dtype),
        _restore(weights, of_kernel, x.dtype),
        bias,
    )
    return product, (inputs, weights, of_kernel, bias, scales, largest)


def _backward(names: tuple[str | None, ...], kept: tuple, gradient: Array) -> tuple:
    inputs, weights, of_kernel, bias, scales, largest = kept
    outer, largest_outer = _round_and_measure(gradient, scales[1], _BACKWARD)
    arrays = (
        _restore(inputs, scales[0], gradient.dtype),
        _restore(weights, of_kernel, gradient.dtype),
        bias,
    )
    with jax.default_matmul_precision("highest"):  # no fast sums of few bits
        to_x, to_kernel, _ = matmul.linear_gradients(
            names, arrays, _restore(outer, scales[1], gradient.dtype)
        )
    to_bias = jnp.sum(gradient.reshape(-1, bias.size), axis=0, dtype=jnp.float32)
    found = jnp.stack([largest, largest_outer])
    return to_x, to_kernel, to_bias.reshape(bias.shape), found


linear.defvjp(_forward, _backward)


class Products:
    """The encoder's matrix products, and the largest numbers of their last steps.

    These are `amax["history"]` [products, 2, HISTORY] in float32: of the inputs and of
    the gradients, the newest first. A stacked layer has a product for each layer.
    """

    def __init__(self, params: Mapping[str, Any]):
        """Finds the kernels among a model's parameters, or their shapes.

        Raises:
          UserError: There are none.
        """
        # The number of layers in a kernel, 0 for one that is not stacked.
        self._layers = {
            (*path[:-1], NAME): x.shape[0] if "layers" in path else 0
            for path, x in sorted(flatten_dict(params).items())
            if path[-1] == "kernel" and "encoder" in path
        }
        if not self._layers:
            raise UserError(
                "config.model.products=fp8: this model's encoder has no matrix "
                "products in 8 bits; set it to dtype"
            )

    def init_amax(self) -> dict[str, Array]:
        """Returns those before the first step: 0."""
        count = sum(max(1, layers) for layers in self._layers.values())
        return {"history": jnp.zeros((count, 2, HISTORY))}

    def scales(self, amax: Mapping[str, Array]) -> dict[str, Any]:
        """Returns the scales as a tree of parameters."""
        largest = jnp.max(amax["history"], axis=-1)
        both = (
            power_of_2(largest[:, i], x) for i, x in enumerate((_FORWARD, _BACKWARD))
        )
        scales = jnp.stack([*both], axis=1)
        tree, start = {}, 0
        for path, layers in self._layers.items():
            tree[path] = scales[start : start + layers] if layers else scales[start]
            start += max(1, layers)
        return unflatten_dict(tree)

    def take(
        self, gradients: Params, amax: Mapping[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Returns the gradients without those of `scales`, and the next `amax`."""
        flat = flatten_dict(gradients)
        found = [flat.pop(path).reshape(-1, 2) for path in self._layers]
        newest = jnp.concatenate(found)[:, :, None]
        after = jnp.concatenate([newest, amax["history"][:, :, :-1]], axis=-1)
        return unflatten_dict(flat), {"history": after}
