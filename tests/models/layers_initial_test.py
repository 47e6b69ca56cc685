"""Initial values of kernels, by a family's initializer."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.layers import kernel_initializer
from tests.micro import bert_config


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
