"""Lookups and their gradients, against those that JAX makes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bert_jax.models.kernels.lookup import gather_by_blocks, lookup_rows, sum_by_row
from bert_jax.training import sharding
from tests.close import assert_close


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "rows", "skew"), [(1, 3, 0.0), (300, 700, 0.9), (16_500, 700, 0.2)]
)
def test_vectors_are_summed_by_their_ids(count, rows, skew):
    """Within float32's rounding of NumPy's sums in float64."""
    rng = np.random.default_rng(count)
    ids = rng.integers(0, rows, count) * (rng.random(count) >= skew)
    vectors = rng.normal(size=(count, 5)).astype(np.float32)
    expected = np.zeros((rows, 5))
    np.add.at(expected, ids, vectors.astype(np.float64))
    found = np.asarray(jax.jit(partial(sum_by_row, rows))(ids, vectors))
    assert found.dtype == np.float32
    atol = 1e-6 * max(1, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, atol=atol)
    assert not found[np.bincount(ids, minlength=rows) == 0].any()


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_lookup_s_gradient_is_a_gather_s(devices, dtype):
    """The batch split over devices, and two models in one program."""
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(2, 50, 6)), dtype)
    ids = jnp.asarray(np.minimum(rng.zipf(1.3, (2, 16, 40)), 50) - 1)
    given = jnp.asarray(rng.normal(size=(2, 16, 40, 6)), dtype)
    shape = (devices // 2 or 1, min(devices, 2), 1)
    places = jax.devices()[:devices]
    mesh = jax.make_mesh(shape, sharding.AXES, (AxisType.Auto,) * 3, devices=places)

    def gradient(look, table, ids, given):
        output, pull = jax.vjp(lambda table: look(table, ids), table)
        return output, *pull(given)

    looks = (lookup_rows, lambda table, ids: jnp.take(table, ids, axis=0))
    with sharding.activate_mesh(mesh):
        found, expected = (
            jax.jit(jax.vmap(partial(gradient, look)))(table, ids, given)
            for look in looks
        )
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1].dtype == expected[1].dtype
    largest = np.abs(np.float32(expected[1])).max()
    error = np.abs(np.float32(found[1]) - np.float32(expected[1])).max() / largest
    assert error < (1e-6 if dtype == jnp.float32 else 0.05)  # a gather's is the worse


@pytest.mark.parametrize("tail", [(4,), (3, 4)])
def test_gradients_of_picked_places_are_added_where_they_meet(tail):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 7, *tail)), jnp.float32)
    places = jnp.asarray([[0, 3, 0, 0], [6, 6, 1, 2]])
    given = jnp.asarray(rng.normal(size=(2, 4, *tail)), jnp.float32)
    every = places.reshape(2, 4, *[1] * len(tail))
    output, pull = jax.vjp(lambda x: gather_by_blocks(7, x, every), x)
    row = np.arange(2)[:, None]
    np.testing.assert_array_equal(output, np.asarray(x)[row, places])
    expected = np.zeros(x.shape)
    np.add.at(expected, (row, np.asarray(places)), given)
    assert_close(pull(given)[0], expected)
