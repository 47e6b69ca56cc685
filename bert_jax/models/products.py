"""Matrix products that multiply in one dtype, forward and backward, and sum in float32.

By itself, JAX multiplies the float32 gradient of a float32 result with a bfloat16
matrix: in float32, at half the speed or less.
"""

import functools

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def product(
    spec: str,
    a: Float[Array, "..."],
    b: Float[Array, "..."],
    result: DTypeLike,
) -> Float[Array, "..."]:
    """An einsum of two arrays of the same dtype.

    Args:
      spec: as for `jnp.einsum`; each index is in two of its three parts, or in all.
      result: dtype of the result. The gradients have the arrays' dtype.
    """
    return _einsum(spec, a, b, result)


def _forward(spec: str, a: Array, b: Array, result: DTypeLike) -> tuple:
    return _einsum(spec, a, b, result), (a, b)


def _backward(
    spec: str, result: DTypeLike, arrays: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    del result
    a, b = arrays
    left, right, out = spec.replace("->", ",").split(",")
    gradient = gradient.astype(a.dtype)
    to_a = _einsum(f"{out},{right}->{left}", gradient, b, a.dtype)
    if right[0] in out:
        to_b = _einsum(f"{out},{left}->{right}", gradient, a, b.dtype)
    else:
        to_b = _einsum(f"{left},{out}->{right}", a, gradient, b.dtype)
    return to_a, to_b


product.defvjp(_forward, _backward)


@jax.custom_vjp
def linear(
    x: Float[Array, "rows inputs"],
    kernel: Float[Array, "inputs outputs"],
    bias: Float[Array, "outputs"],
) -> Float[Array, "rows outputs"]:
    """x @ kernel + bias in the dtype of `x` and `kernel`; the bias is float32, and its
    gradient is a sum in float32."""
    return _einsum("ri,io->ro", x, kernel, x.dtype) + bias.astype(x.dtype)


def _linear_forward(x: Array, kernel: Array, bias: Array) -> tuple:
    return linear(x, kernel, bias), (x, kernel)


def _linear_backward(
    arrays: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array, Array]:
    to_x, to_kernel = _backward("ri,io->ro", gradient.dtype, arrays, gradient)
    return to_x, to_kernel, jnp.sum(gradient, axis=0, dtype=jnp.float32)


linear.defvjp(_linear_forward, _linear_backward)


def _einsum(spec: str, a: Array, b: Array, result: DTypeLike) -> Array:
    def anywhere(a: Array, b: Array) -> Array:
        return jnp.einsum(spec, a, b, preferred_element_type=result)

    if a.dtype == jnp.float32:
        return anywhere(a, b)
    on_cpu = functools.partial(_einsum_on_cpu, spec, result)
    return jax.lax.platform_dependent(a, b, cpu=on_cpu, default=anywhere)


def _einsum_on_cpu(spec: str, result: DTypeLike, a: Array, b: Array) -> Array:
    """Written so that XLA's CPU compiler multiplies in bfloat16, twice as fast as in
    float32: with a float32 result, and contiguous rows of the matrix on the left."""
    left, rest = spec.split(",")
    right, out = rest.split("->")
    if left[-1] in out and a.ndim == 2:
        # The leading axis of 1 keeps XLA from folding this copy into the product.
        a, left = jnp.swapaxes(a[None], 1, 2).copy()[0], left[::-1]
    elif left[-1] in out:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    sums = jnp.einsum(f"{left},{right}->{out}", a, b, preferred_element_type="float32")
    return sums.astype(result)
