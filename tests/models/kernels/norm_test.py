"""The fused bias, dropout, residual and LayerNorm, interpreted, against plain code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bert_jax.models.kernels.norm import fused_norm
from bert_jax.models.layers import dropout

EPS = 1e-12
NAMES = ("x", "bias", "residual", "scale", "offset")


def arrays(shape, dtype):
    """x, bias, residual, scale and offset, and the gradient of the result."""
    keys = jax.random.split(jax.random.key(0), 6)
    hidden = shape[-1:]
    x, residual, gradient = (
        jax.random.normal(key, shape).astype(dtype) for key in keys[:3]
    )
    bias, scale, offset = (jax.random.normal(key, hidden) for key in keys[3:])
    return (x, bias, residual, 1 + 0.1 * scale, 0.1 * offset), gradient


def plain(x, bias, residual, scale, offset, rate, key, positions=None):
    wide = x.astype(jnp.float32) + bias
    total = residual.astype(jnp.float32) + dropout(wide, rate, key, positions)
    mean = total.mean(axis=-1, keepdims=True)
    variance = jnp.mean((total - mean) ** 2, axis=-1, keepdims=True)
    normed = (total - mean) / jnp.sqrt(variance + EPS) * scale + offset
    return normed.astype(x.dtype)


def fused(*given, rate, key, positions=None):
    return fused_norm(*given, rate, key, EPS, positions, interpret=True)


def results(function, given, gradient):
    """The output and the gradients of all arrays."""

    @jax.jit
    def both(given, gradient):
        output, pull = jax.vjp(function, *given)
        return output, *pull(gradient)

    return both(given, gradient)


def compare(found, expected, dtype):
    """Within a few roundings of the largest value. Sums over rows have more terms."""
    for name, one, other in zip(("output", *NAMES), found, expected, strict=True):
        assert one.dtype == other.dtype, name
        one, other = np.float64(one), np.float64(other)
        error = abs(one - other).max() / abs(other).max()
        assert error < 8 * float(jnp.finfo(dtype).eps), (name, error)


@pytest.mark.parametrize(
    ("shape", "rate", "dtype"),
    [
        ((2, 40, 96), 0.1, "float32"),
        ((3, 7, 64), 0.1, "bfloat16"),
        ((1, 5, 88), 0.0, "float32"),
    ],
)
def test_output_and_gradients_are_those_of_plain_code(shape, rate, dtype):
    """The same elements are dropped. Rows that fill no block are padded."""
    given, gradient = arrays(shape, dtype)
    key = jax.random.key(1)
    found = results(lambda *x: fused(*x, rate=rate, key=key), given, gradient)
    expected = results(lambda *x: plain(*x, rate, key), given, gradient)
    compare(found, expected, dtype)


def test_rows_at_chosen_positions_drop_the_same_elements():
    given, gradient = arrays((2, 3, 32), "float32")
    positions = jnp.array([[5, 0, 9], [2, 2, 31]])
    key = jax.random.key(1)
    found = results(
        lambda *x: fused(*x, rate=0.5, key=key, positions=positions), given, gradient
    )
    expected = results(lambda *x: plain(*x, 0.5, key, positions), given, gradient)
    compare(found, expected, "float32")


def test_mesh_gives_what_one_device_gives():
    given, gradient = arrays((8, 16, 32), "float32")
    key = jax.random.key(1)

    def both():
        return results(lambda *x: fused(*x, rate=0.1, key=key), given, gradient)

    expected = both()
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), (AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        found = both()
    compare(found, expected, "float32")
    np.testing.assert_array_equal(found[0], expected[0])
