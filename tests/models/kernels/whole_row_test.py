"""The TPU's kernel of whole rows, interpreted, against the einsum attention."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bert_jax import registry
from bert_jax.models import layers
from bert_jax.models.attention import einsum_attention
from bert_jax.models.kernels import whole_row
from tests.attending import outputs_and_gradients, sees, values
from tests.close import tolerance

interpreted = partial(whole_row.whole_row_attention, interpret=True)


def assert_alike(found, expected):
    """Within the rounding of sums over 256 keys, which are float32, and within eight
    roundings of bfloat16's largest value."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        limit = tolerance(np.float32(other), terms=256)
        if one.dtype == jnp.bfloat16:
            limit = (
                8 * float(jnp.finfo(one.dtype).eps) * np.abs(np.float64(other)).max()
            )
        np.testing.assert_allclose(
            np.float64(one), np.float64(other), rtol=0, atol=limit
        )


def compared(shape, dtype, rate, kind, window=0):
    """Outputs and gradients: those of einsum, with the same elements dropped."""
    given = values(shape, dtype)
    seen = sees("packed" if kind == "causal" else kind, *shape[:2]).with_window(window)

    def whole_rows(*three_and_rest):
        *three, seen, rate, key, causal = three_and_rest
        return interpreted(*three, seen.ids, rate, key, causal, seen.window)

    def einsum(*given):
        return einsum_attention(*given)[0]

    @partial(jax.jit, static_argnums=0)
    def results(attend, *given):
        return outputs_and_gradients(attend, *given, seen, rate, kind == "causal")

    found, expected = (results(attend, *given) for attend in (whole_rows, einsum))
    assert_alike(found, expected)


@pytest.mark.parametrize(
    ("shape", "dtype", "rate", "kind"),
    [
        ((3, 40, 3, 16), "float32", 0.1, "causal"),  # padded to 128
        ((1, 130, 1, 128), "float32", 0.1, "padded"),  # to 256
        ((1, 256, 2, 64), "bfloat16", 0.1, "packed"),
    ],
)
def test_outputs_and_gradients_are_the_einsum_s(shape, dtype, rate, kind):
    compared(shape, dtype, rate, kind)


def test_windows_are_the_einsum_s():
    compared((1, 160, 2, 64), "float32", 0.1, "packed", window=16)


@pytest.fixture
def as_on_a_tpu(monkeypatch):
    monkeypatch.setattr(layers, "platform_name", lambda: "tpu")
    monkeypatch.setattr(whole_row, "whole_row_attention", interpreted)


def test_fused_is_this_kernel_on_a_mesh_of_tpus(as_on_a_tpu):
    """Rows and heads split over devices, and two models in one program."""
    *given, gradient = (
        jnp.stack([x, x / 2]) for x in values((4, 24, 2, 16), "float32")
    )
    seen = sees("padded", 4, 24)

    @partial(jax.jit, static_argnums=0)
    def results(name, *three):
        def of_one(gradient, *three):
            attend = registry.ATTENTIONS[name]
            key = jax.random.key(3)
            output, pull = jax.vjp(lambda *xs: attend(*xs, seen, 0.1, key)[0], *three)
            return output, *pull(gradient)

        return jax.vmap(of_one)(gradient, *three)

    expected = results("einsum", *given)
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), (AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        found = results("fused", *given)
    assert len(found[0].sharding.device_set) == 8
    assert_alike(found, expected)
