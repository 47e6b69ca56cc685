"""Products of 8 bits beside those of the rounded arrays in float64."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from close import assert_close

from bert_jax.errors import UserError
from bert_jax.models import float8
from bert_jax.training.step import init_state, train_step

NAMES = ("embed", "heads", "head_dim")
FORWARD, BACKWARD = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def rounded(x, most, dtype):
    """Rounds by ml_dtypes, with the largest usable power of 2 found by trying."""
    limit = float(ml_dtypes.finfo(dtype).max)
    scale = min(2.0**k for k in range(-60, 60) if 2.0**k > most / limit)
    scaled = np.clip(np.asarray(x, np.float64) / scale, -limit, limit)
    return scaled.astype(np.float32).astype(dtype).astype(np.float64) * scale


@pytest.fixture(params=["float32", "bfloat16"])
def arrays(request):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(3, 5, 16)), request.param)
    kernel = jnp.asarray(rng.normal(size=(16, 2, 8)) / 40, jnp.float32)
    bias = jnp.asarray(rng.normal(size=(2, 8)), jnp.float32)
    gradient = jnp.asarray(rng.normal(size=(3, 5, 2, 8)) / 1e5, request.param)
    return x, kernel, bias, gradient


def result_terms(x):
    """Returns the terms of a sum of 16 products. In bfloat16 a product, a bias and
    their sum are each rounded by 2^-9: as many roundings of float32 leave 3 x 2^-9."""
    return 16 if x.dtype == jnp.float32 else 9 * 2**28


def scales(inputs, outer):
    return jnp.array([inputs, outer], jnp.float32)


def gradients(arrays, scales):
    x, kernel, bias, gradient = arrays
    given = (x, kernel, bias, scales)
    outputs, pull = jax.vjp(lambda *each: float8.linear(NAMES, *each), *given)
    return outputs, pull(gradient)


def test_products_are_those_of_rounded_arrays(arrays):
    x, kernel, bias, gradient = arrays
    largest = jnp.array([3.0, 2e-5])
    known = scales(*map(float8.power_of_2, largest, (FORWARD, BACKWARD)))
    outputs, (to_x, to_kernel, to_bias, found) = gradients(arrays, known)
    wide = rounded(x, 3.0, FORWARD).reshape(15, 16)
    weights = rounded(kernel, np.abs(kernel).max(), FORWARD).reshape(16, 16)
    outer = rounded(gradient, np.float32(2e-5), BACKWARD).reshape(15, 16)
    terms = result_terms(x)
    assert_close(outputs.reshape(15, 16), wide @ weights + bias.reshape(-1), terms)
    assert_close(to_x.reshape(15, 16), outer @ weights.T, terms)
    assert_close(to_kernel.reshape(16, 16), wide.T @ outer, 16)
    assert_close(to_bias, np.asarray(gradient, np.float64).sum((0, 1)), 16)
    expected = np.abs(x).max(), np.abs(gradient).max()
    np.testing.assert_array_equal(found, np.float32(expected))
    # It is not the product of the arrays themselves.
    exact = np.asarray(x, np.float64).reshape(15, 16) @ np.reshape(kernel, (16, 16))
    assert np.abs(outputs.reshape(15, 16) - exact - bias.reshape(-1)).max() > 1e-3


def test_larger_numbers_than_before_become_the_largest(arrays):
    x, kernel, bias, _ = arrays
    outputs = float8.linear(NAMES, x, kernel, bias, scales(2.0**-9, 1))
    clipped = rounded(x, 0.5, FORWARD)
    assert np.abs(clipped).max() == 448 * 2.0**-9
    weights = rounded(kernel, np.abs(kernel).max(), FORWARD)
    expected = np.tensordot(clipped, weights, 1) + bias
    assert_close(outputs, expected, result_terms(x))


@pytest.mark.parametrize("dtype", [FORWARD, BACKWARD])
def test_scale_of_a_largest_number(dtype):
    limit = float(ml_dtypes.finfo(dtype).max)
    numbers = [0.0, np.inf, np.nan, limit, limit * 1.01, limit / 2, 1e-35, 1e38]
    found = float8.power_of_2(jnp.array(numbers, jnp.float32), dtype)
    # The last two are the bounds: neither they nor their inverses are 0 or infinite.
    np.testing.assert_array_equal(found, [1, 1, 1, 2, 2, 1, 2.0**-99, 2.0**101])


def test_largest_numbers_of_a_step():
    layers = {"kernel": jnp.zeros((3, 4, 4))}
    one = {"kernel": jnp.zeros((4, 4))}
    params = {"encoder": {"layers": layers, "out": one}, "head": one}
    products = float8.Products(params)
    before = products.init_amax()["history"]
    assert before.shape == (4, 2, 16)
    before = before.at[:, :, 0].set(jnp.arange(8.0).reshape(4, 2) + 500)
    tree = products.scales({"history": before})
    assert set(tree["encoder"]) == {"layers", "out"} and "head" not in tree
    scales = np.concatenate([tree["encoder"]["layers"]["scales"],
                             tree["encoder"]["out"]["scales"][None]])  # fmt: skip
    np.testing.assert_array_equal(scales, [[2, 2.0**-6]] * 4)
    found = {
        "encoder": {
            "layers": {"scales": jnp.full((3, 2), 7.0), "kernel": 1},
            "out": {"scales": jnp.array([8.0, 9.0])},
        }
    }
    rest, after = products.take(found, {"history": before})
    after = after["history"]
    assert rest == {"encoder": {"layers": {"kernel": 1}}}
    np.testing.assert_array_equal(after[:, :, 0], [[7, 7]] * 3 + [[8, 9]])
    np.testing.assert_array_equal(after[:, :, 1], before[:, :, 0])
    assert after.shape == before.shape


def test_model_without_products_in_its_encoder():
    with pytest.raises(UserError, match=r"^config\.model\.products=fp8: "):
        float8.Products({"elmo": {"kernel": jnp.zeros((2, 2))}})


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_step_with_infinity_is_an_anomaly_and_leaves_no_trace(micro_batches):
    rng = np.random.default_rng(0)
    layer = {"kernel": jnp.asarray(rng.normal(size=(6, 4))), "bias": jnp.zeros(4)}
    params = {"encoder": {"dense": layer}}
    products, optimizer = float8.Products(params), optax.sgd(0.1)

    def loss(params, batch, key):
        layer = params["encoder"]["dense"]
        given = layer["kernel"], layer["bias"], layer[float8.NAME]
        return {"loss": jnp.sum(float8.linear(("embed", "mlp"), batch["x"], *given))}

    take = functools.partial(
        train_step,
        seed=0,
        learning_rate=0.1,
        loss=loss,
        loss_weights=lambda batch: {"loss": jnp.float32(len(batch["x"]))},
        optimizer=optimizer,
        micro_batches=micro_batches,
        products=products,
    )
    usual = rng.normal(size=(4, 6)).astype(np.float32)
    state = init_state(params, optimizer, products=products)
    state, metrics = jax.jit(take)(state, {"x": jnp.asarray(usual)})
    assert not metrics["anomaly"]
    # The largest numbers of any micro-batch.
    assert state.amax["history"][0, 0, 0] == np.abs(usual).max()
    after, metrics = jax.jit(take)(
        state, {"x": jnp.asarray(usual).at[0, 0].set(np.inf)}
    )
    assert metrics["anomaly"] and np.isfinite(metrics["loss"])
    for name in ("params", "amax"):
        jax.tree.map(
            np.testing.assert_array_equal, getattr(after, name), getattr(state, name)
        )
