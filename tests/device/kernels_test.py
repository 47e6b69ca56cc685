"""Attention on the device itself, against einsum in float32 on the processor."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.models.attention import AttentionMask, einsum_attention
from bert_jax.models.kernels import choose, lookup
from bert_jax.models.kernels.activation import fused_activation
from bert_jax.models.kernels.norm import fused_norm
from bert_jax.models.layers import ACTIVATION_FUNCTIONS
from tests.attending import outputs_and_gradients, sees, values
from tests.models.kernels import norm_test

RATE = 0.1
KINDS = ["padded", "packed", "causal"]
# batch, length, heads, size of a head: Base's, those of other sizes, odd lengths.
SHAPES = [
    *((4, 128, 12, 64), (2, 512, 12, 64), (2, 512, 16, 64)),
    *((3, 40, 3, 16), (2, 200, 2, 32), (2, 96, 2, 128), (1, 7, 1, 32)),
]
# Relative to the largest value, by TF32 (float32 by default), float32, bfloat16.
ERRORS = {"float32": 2e-3, "highest": 2e-5, "bfloat16": 2e-2}


def results(
    attend, given, seen: AttentionMask, rate: float, causal: bool
) -> list[np.ndarray]:
    """The outputs and the gradients of query, keys and values."""

    def mixed(*inputs):
        return attend(*inputs)[0]

    @jax.jit
    def both(*arrays):
        *four, seen = arrays
        return outputs_and_gradients(mixed, *four, seen, rate, causal)

    return [np.float32(x) for x in both(*given, seen)]


def compared(attend, shape, precision, seen, rate, causal, processor) -> None:
    given = values(shape, "bfloat16" if precision == "bfloat16" else "float32")
    wide, sight = jax.device_put(([np.float32(x) for x in given], seen), processor)
    with jax.default_device(processor):
        expected = results(einsum_attention, wide, sight, rate, causal)
    name = "highest" if precision == "highest" else None
    with jax.default_matmul_precision(name):
        found = results(attend, given, seen, rate, causal)
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(one).all()
        error = np.abs(one - other).max() / np.abs(other).max()
        assert error < ERRORS[precision], f"{error:.2g}"


@pytest.mark.parametrize(
    ("shape", "precision", "rate", "kind"),
    [
        *(
            (shape, precision, RATE, "padded")
            for shape in SHAPES
            for precision in ERRORS
        ),
        *((shape, "highest", RATE, "packed") for shape in SHAPES),
        *((shape, "highest", 0.0, kind) for shape in SHAPES for kind in KINDS),
    ],
)
def test_fused(processor, shape, precision, rate, kind):
    """With dropout too: the same elements are dropped."""
    seen = sees(kind, *shape[:2])
    causal = kind == "causal"
    compared(choose.fused_attention, shape, precision, seen, rate, causal, processor)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", [1, 16, 70])
def test_windows_of_fused(processor, shape, window):
    seen = sees("packed", *shape[:2]).with_window(window)
    compared(choose.fused_attention, shape, "highest", seen, 0.0, False, processor)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ERRORS)
def test_einsum(processor, shape, precision):
    seen = sees("padded", *shape[:2])
    compared(einsum_attention, shape, precision, seen, RATE, False, processor)


@pytest.mark.parametrize("rows", [2, 500, 30_522])
def test_gradients_of_a_lookup(device, rows):
    """Those of a table whose first row a tenth of the tokens have, and their bits."""
    if device != "gpu":
        pytest.skip("a TPU adds rows in one order by itself")
    rng = np.random.default_rng(0)
    ids = rng.integers(0, rows, (64, 130)) * (rng.random((64, 130)) > 0.1)
    vectors = rng.normal(size=(*ids.shape, 96)).astype(np.float32)
    expected = np.zeros((rows, 96))
    np.add.at(expected, ids, vectors.astype(np.float64))
    total = jax.jit(lookup.sum_by_row, static_argnums=0)
    found, again = (np.asarray(total(rows, ids, vectors)) for _ in range(2))
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())
    np.testing.assert_array_equal(found, again)


def beside_the_processor(function, plain, given, gradient, precision, processor):
    """Checks outputs and gradients against plain float32 code, and their bits again."""

    def outputs(function, given, gradient):
        return jax.jit(lambda *x: norm_test.results(function, *x))(given, gradient)

    found, again = (outputs(function, given, gradient) for _ in range(2))
    wide = jax.device_put(jax.tree.map(np.float32, (given, gradient)), processor)
    with jax.default_device(processor):
        expected = outputs(plain, *wide)
    for one, same, other in zip(found, again, expected, strict=True):
        np.testing.assert_array_equal(one, same)
        error = np.abs(np.float32(one) - other).max() / np.abs(other).max()
        assert error < ERRORS[precision], f"{error:.2g}"


@pytest.mark.parametrize("precision", ["highest", "bfloat16"])
@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("shape", [(4, 128, 768), (3, 7, 1024), (2, 21, 256)])
def test_norm(device, processor, shape, rate, precision):
    """With the same elements dropped."""
    if device != "gpu":
        pytest.skip("the kernel is for GPUs")
    dtype = "bfloat16" if precision == "bfloat16" else "float32"
    given, gradient = norm_test.arrays(shape, dtype)
    key = jax.random.key(1)
    beside_the_processor(
        lambda *x: fused_norm(*x, rate, key, norm_test.EPS),
        lambda *x: norm_test.plain(*x, rate, key),
        *(given, gradient, precision, processor),
    )


@pytest.mark.parametrize("precision", ["highest", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATION_FUNCTIONS)
def test_activation(device, processor, name, precision):
    if device != "gpu":
        pytest.skip("the kernel is for GPUs")
    dtype = "bfloat16" if precision == "bfloat16" else "float32"
    (x, bias, *_), gradient = norm_test.arrays((3, 37, 1536), dtype)
    beside_the_processor(
        functools.partial(fused_activation, name),
        lambda x, bias: ACTIVATION_FUNCTIONS[name](x + bias),
        *((x, bias), gradient, precision, processor),
    )
