"""The fused activation, interpreted, against plain code."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.sharding import AxisType

from bert_jax.models.kernels.activation import DERIVATIVES, fused_activation
from bert_jax.models.layers import ACTIVATION_FUNCTIONS


def outputs(activate, x, bias, gradient):
    output, pull = jax.vjp(activate, x, bias)
    return output, *pull(gradient)


def fused(name):
    return functools.partial(fused_activation, name, interpret=True)


def slopes(name, x):
    """The derivative in double precision."""
    if name == "relu":
        return np.where(x > 0, 1.0, 0.0)
    if name == "gelu":
        return scipy.stats.norm.cdf(x) + x * scipy.stats.norm.pdf(x)
    factor = np.sqrt(2 / np.pi)
    tanh = np.tanh(factor * (x + 0.044715 * x**3))
    inner = factor * (1 + 3 * 0.044715 * x**2)
    return (1 + tanh) / 2 + x / 2 * (1 - tanh**2) * inner


def arrays(shape, dtype):
    keys = jax.random.split(jax.random.key(0), 3)
    x, gradient = (3 * jax.random.normal(key, shape).astype(dtype) for key in keys[:2])
    return x, jax.random.normal(keys[2], shape[-1:]), gradient


def compare(found, expected, dtype):
    for one, other in zip(found, expected, strict=True):
        one, other = np.float64(one), np.float64(other)
        assert abs(one - other).max() < 8 * jnp.finfo(dtype).eps * abs(other).max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATION_FUNCTIONS)
@pytest.mark.parametrize("shape", [(2, 40, 96), (3, 7, 1024)])
def test_output_and_gradients_are_those_of_plain_code(shape, name, dtype):
    """Rows that fill no block are padded."""
    x, bias, gradient = arrays(shape, dtype)
    found = outputs(fused(name), x, bias, gradient)
    biased = np.float32(x) + np.float32(bias)
    to_x = slopes(name, np.float64(biased)) * np.float64(gradient)
    output = ACTIVATION_FUNCTIONS[name](biased)
    compare(found, (output, to_x, to_x.sum(axis=(0, 1))), dtype)
    assert [each.dtype for each in found] == [dtype, dtype, "float32"]


def test_activations_have_their_derivatives():
    assert DERIVATIVES.keys() == ACTIVATION_FUNCTIONS.keys()
    x = np.concatenate([np.linspace(-12, 12, 4001), [-1e4, 1e4]]).astype(np.float32)
    for name, derivative in DERIVATIVES.items():
        # A few roundings of values around 1, and Abramowitz and Stegun's 1.5e-7.
        expected = slopes(name, np.float64(x))
        found = derivative(jnp.asarray(x))
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


def test_mesh_gives_what_one_device_gives():
    given = arrays((8, 16, 64), "float32")
    expected = jax.jit(outputs, static_argnums=0)(fused("gelu"), *given)
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), (AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        found = jax.jit(outputs, static_argnums=0)(fused("gelu"), *given)
    compare(found, expected, "float32")
