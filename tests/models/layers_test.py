"""Dropout's bits, as if drawn independently, and the initial values of kernels."""

import dataclasses
import functools
import itertools
import math
from collections import Counter

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.layers import dropout, kernel_initializer, random_bits
from tests.micro import bert_config

ROWS, COLUMNS = 2048, 512


@functools.partial(jax.jit, static_argnums=1)
def draws(key: jax.Array, rate: float) -> list[jax.Array]:
    """Returns which elements two layers keep."""
    limit = jnp.uint32(round(rate * 2**32))
    layers = jax.random.split(key, 2)
    return [random_bits(layer, (ROWS, COLUMNS)) >= limit for layer in layers]


def sums(key: jax.Array, rate: float) -> dict[str, tuple[int, float]]:
    """Sums over one layer's draws, with their counts. Each has mean 0 if draws
    are independent."""
    kept, next_layer = (
        np.asarray(one).ravel().astype(np.float32) - np.float32(1 - rate)
        for one in draws(key, rate)
    )
    found = {
        "rate": (kept.size, float(kept.sum(dtype=np.float64))),
        "layers": (kept.size, float(kept @ next_layer)),
    }
    for lag in (1, 2, 3, 16, 64, 256):
        for name, shift in (
            (f"columns, {lag} apart", lag),
            (f"rows, {lag} apart", lag * COLUMNS),
            (f"diagonals, {lag} apart", lag * COLUMNS + lag),
        ):
            found[name] = kept.size - shift, float(kept[shift:] @ kept[:-shift])
    return found


@pytest.mark.slow
def test_rate_and_correlations():
    """Over 10^8 draws."""
    rate, layers = 0.1, 96
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for step in range(layers):
        key = jax.random.fold_in(jax.random.key(17), step)
        for name, (count, total) in sums(key, rate).items():
            counts[name] += count
            totals[name] += total
    variance = rate * (1 - rate)
    assert counts["rate"] > 1e7
    for name, total in totals.items():
        each = variance if name == "rate" else variance**2
        z = total / math.sqrt(counts[name] * each)
        assert abs(z) < 4, (name, z)


@pytest.mark.slow
def test_dropout_bits_are_even_and_independent():
    bits = np.asarray(random_bits(jax.random.key(5), (512, 512))).ravel()
    # The last xorshift is left out: a threshold reads the upper bits.
    columns = [(bits >> place & 1).astype(np.float64) - 0.5 for place in range(16, 32)]
    for one in columns:
        assert abs(one.sum()) / math.sqrt(bits.size / 4) < 4
    for one, other in itertools.combinations(columns, 2):
        assert abs(one @ other) / math.sqrt(bits.size / 16) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 5), (2, 2, 3, 16)])
def test_element_depends_on_its_place_alone(shape):
    """So neither padding nor the split of a batch changes which are dropped."""
    key = jax.random.key(0)
    found = np.asarray(random_bits(key, shape))
    larger = np.asarray(random_bits(key, tuple(2 * size for size in shape)))
    np.testing.assert_array_equal(found, larger[tuple(map(slice, shape))])
    assert len(np.unique(larger)) == larger.size


def test_dropout_scales_what_is_kept():
    x = jnp.full((64, 64), 9.0)
    found = np.asarray(dropout(x, 0.1, jax.random.key(0)))
    kept = np.asarray(random_bits(jax.random.key(0), x.shape)) >= round(0.1 * 2**32)
    np.testing.assert_allclose(found, np.where(kept, 10.0, 0.0), rtol=1e-6)
    assert dropout(x, 0.1, None) is x and dropout(x, 0.0, jax.random.key(0)) is x


def by_fan_in(config, names):
    return nn.initializers.variance_scaling(
        config.initializer_range, "fan_in", "normal"
    )


@pytest.mark.parametrize("make", [None, by_fan_in])
def test_values_are_the_initializers(make):
    """In a module of Flax's, too, which gives a list and a dtype."""

    config = bert_config(initializer_range=0.5, vocab_size=9)
    config = dataclasses.replace(config, initializer=make)
    init = kernel_initializer(config, ("embed", "mlp"))
    key, shape = jax.random.key(1), (6, 4)
    plain = make(config, ()) if make else nn.initializers.truncated_normal(0.5)
    expected = plain(key, shape, jnp.float32)
    found = nn.meta.unbox(init(key, [*shape]))  # rounded in another order
    np.testing.assert_allclose(found, expected, rtol=4 * jnp.finfo(jnp.float32).eps)
    dense = nn.Dense(4, kernel_init=init, param_dtype=jnp.bfloat16)
    kernel = nn.meta.unbox(dense.init(key, jnp.ones((1, 6))))["params"]["kernel"]
    assert kernel.dtype == jnp.bfloat16 and kernel.shape == shape
