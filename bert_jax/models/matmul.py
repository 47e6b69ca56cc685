"""Matrix products that multiply in one dtype, forward and backward, and sum in float32.

By itself, JAX multiplies the float32 gradient of a float32 result with a bfloat16
matrix: in float32, at half the speed or less.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def multiplied_einsum(
    spec: str,
    a: Float[Array, "..."],
    b: Float[Array, "..."],
    result: DTypeLike,
) -> Float[Array, "..."]:
    """Computes an einsum of two arrays, multiplied in the dtype of `a`.

    Args:
      spec: Subscripts as for `jnp.einsum`. Each index is in two of its three parts, or
        in all.
      b: An array in the dtype of `a`, or in float32. In float32 its gradient is not
        rounded.
      result: Dtype of the result. The gradients have the arrays' dtypes.
    """
    return _einsum(spec, a, b.astype(a.dtype), result)


def _forward(spec: str, a: Array, b: Array, result: DTypeLike) -> tuple:
    return multiplied_einsum(spec, a, b, result), (a, b)


def _backward(
    spec: str, result: DTypeLike, arrays: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    del result
    a, b = arrays
    left, right, out = spec.replace("->", ",").split(",")
    gradient = gradient.astype(a.dtype)
    to_a = _einsum(f"{out},{right}->{left}", gradient, b.astype(a.dtype), a.dtype)
    if right[0] in out:
        to_b = _einsum(f"{out},{left}->{right}", gradient, a, b.dtype)
    else:
        to_b = _einsum(f"{left},{out}->{right}", a, gradient, b.dtype)
    return to_a, to_b


multiplied_einsum.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(
    names: tuple[str | None, ...],
    x: Float[Array, "..."],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Computes x @ kernel + bias, multiplied in the dtype of `x`.

    The gradients of kernel and bias are sums in float32, which no device rounds before
    they are added to the other devices'.

    Args:
      names: The kernel's logical axes, inputs first. An axis named None is never split.
      x: [..., inputs], where `inputs` may be several axes.
      kernel: [inputs, outputs] in float32, where `outputs` may be several axes.
      bias: [outputs] in float32.
    """
    # As matrices: on the CPU their gradients are twice as fast.
    rows, matrix = _matrices(names, x, kernel, bias.ndim)
    product = _einsum("ri,io->ro", rows, matrix, x.dtype)
    outer = x.shape[: x.ndim - kernel.ndim + bias.ndim]
    return (product + bias.reshape(-1).astype(x.dtype)).reshape(*outer, *bias.shape)


def _matrices(
    names: tuple[str | None, ...], x: Array, kernel: Array, outputs: int
) -> tuple[Array, Array]:
    """Returns [rows, inputs] and [inputs, outputs]. `outputs` is the number of axes."""
    kernel = _gather_vectors(names, kernel.astype(x.dtype))
    matrix = kernel.reshape(math.prod(kernel.shape[: kernel.ndim - outputs]), -1)
    return x.reshape(-1, len(matrix)), matrix


def _gather_vectors(names: tuple[str | None, ...], kernel: Array) -> Array:
    """Keeps vectors whole on each device, as in Embedding: fsdp's parts of the kernel
    are gathered for the product, in its precision. The rows never are."""
    vectors = tuple("hidden" if name == "embed" else name for name in names)
    return nn.with_logical_constraint(kernel, vectors)


def _linear_forward(
    names: tuple[str | None, ...], x: Array, kernel: Array, bias: Array
) -> tuple:
    return linear(names, x, kernel, bias), (x, kernel, bias)


def _linear_backward(
    names: tuple[str | None, ...], arrays: tuple[Array, Array, Array], gradient: Array
) -> tuple[Array, Array, Array]:
    """Returns the gradients of `x`, `kernel` and `bias`, which are `arrays`."""
    x, kernel, bias = arrays
    inputs, matrix = _matrices(names, x, kernel, bias.ndim)
    outputs = gradient.reshape(-1, bias.size)
    to_x = _einsum("ro,io->ri", outputs, matrix, x.dtype)
    to_kernel = _einsum("ri,ro->io", inputs, outputs, jnp.float32)
    to_bias = jnp.sum(outputs, axis=0, dtype=jnp.float32)
    return (
        to_x.reshape(x.shape),
        _gather_vectors(names, to_kernel.reshape(kernel.shape)),
        to_bias.reshape(bias.shape),
    )


linear.defvjp(_linear_forward, _linear_backward)


def _einsum(spec: str, a: Array, b: Array, result: DTypeLike) -> Array:
    def anywhere(a: Array, b: Array) -> Array:
        return jnp.einsum(spec, a, b, preferred_element_type=result)

    if a.dtype == jnp.float32:
        return anywhere(a, b)
    on_cpu = functools.partial(_einsum_on_cpu, spec, result)
    return jax.lax.platform_dependent(a, b, cpu=on_cpu, default=anywhere)


def _einsum_on_cpu(spec: str, result: DTypeLike, a: Array, b: Array) -> Array:
    """Computes the einsum so that XLA's CPU compiler multiplies in bfloat16, twice as
    fast as in float32: with a float32 result, and contiguous rows of the left matrix.
    """
    left, rest = spec.split(",")
    right, out = rest.split("->")
    if left[-1] in out and a.ndim == 2:
        # The leading axis of 1 keeps XLA from folding this copy into the product.
        a, left = jnp.swapaxes(a[None], 1, 2).copy()[0], left[::-1]
    elif left[-1] in out:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    sums = jnp.einsum(f"{left},{right}->{out}", a, b, preferred_element_type="float32")
    return sums.astype(result)
