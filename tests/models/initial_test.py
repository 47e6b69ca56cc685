"""Initial values of kernels, by a family's initializer."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.family import Family
from bert_jax.models.layers import kernel_initializer
from bert_jax.registry import FAMILIES
from tests.micro import bert_config


def by_fan_in(spread):
    return nn.initializers.variance_scaling(spread, "fan_in", "normal")


@pytest.mark.parametrize("make", [nn.initializers.truncated_normal, by_fan_in])
def test_values_are_the_initializers(make, monkeypatch):
    """In a module of Flax's, too, which gives a list and a dtype."""

    class Own(Family):
        initializer = staticmethod(make)

    monkeypatch.setitem(FAMILIES.data, "own", Own())
    config = bert_config(architecture="own", initializer_range=0.5, vocab_size=9)
    init = kernel_initializer(config, ("embed", "mlp"))
    key, shape = jax.random.key(1), (6, 4)
    expected = make(0.5)(key, shape, jnp.float32)
    found = nn.meta.unbox(init(key, [*shape]))  # rounded in another order
    np.testing.assert_allclose(found, expected, rtol=4 * jnp.finfo(jnp.float32).eps)
    dense = nn.Dense(4, kernel_init=init, param_dtype=jnp.bfloat16)
    kernel = nn.meta.unbox(dense.init(key, jnp.ones((1, 6))))["params"]["kernel"]
    assert kernel.dtype == jnp.bfloat16 and kernel.shape == shape
