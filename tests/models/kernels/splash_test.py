"""The TPU's kernel, interpreted, against the einsum attention."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bert_jax import registry
from bert_jax.models import layers
from bert_jax.models.attention import AttentionMask, einsum_attention
from bert_jax.models.kernels import choose, splash
from bert_jax.models.kernels.splash import splash_attention
from tests.attending import sees, values
from tests.close import assert_close

interpreted = partial(splash_attention, interpret=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "kind", "causal", "window"),
    [
        ((1, 300, 1, 64), "packed", True, 0),  # padded to 384: three blocks
        ((3, 7, 2, 32), "padded", False, 0),
        ((2, 300, 2, 32), "packed", False, 64),
    ],
)
def test_outputs_and_gradients_are_the_einsum_s(shape, kind, causal, window):
    *given, gradient = values(shape, "float32")
    seen = sees(kind, *shape[:2]).with_window(window)

    @partial(jax.jit, static_argnums=0)
    def results(attend):
        output, pull = jax.vjp(attend, *given)
        return output, *pull(gradient)

    found = results(lambda *three: interpreted(*three, seen.ids, causal, window))
    expected = results(
        lambda *three: einsum_attention(*three, seen, 0.0, None, causal)[0]
    )
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


@pytest.mark.slow
def test_row_of_padding_alone_is_finite():
    rng = np.random.default_rng(0)
    given = [jnp.asarray(rng.normal(size=(1, 8, 1, 16)), jnp.float32) for _ in "qkv"]
    seen = AttentionMask.from_input_mask(jnp.zeros((1, 8), jnp.int32))
    output, pull = jax.vjp(lambda *three: interpreted(*three, seen.ids), *given)
    mean = given[2].sum(axis=1, keepdims=True) / 128  # with the kernel's own padding
    assert_close(output, jnp.broadcast_to(mean, output.shape))
    assert not any(jnp.any(gradient) for gradient in pull(jnp.zeros_like(output)))


@pytest.fixture
def as_on_a_tpu(monkeypatch):
    monkeypatch.setattr(layers, "platform_name", lambda: "tpu")
    monkeypatch.setattr(choose, "LONGEST_WHOLE_ROW", 0)
    monkeypatch.setattr(splash, "splash_attention", interpreted)


@pytest.mark.slow
def test_fused_is_this_kernel_on_a_mesh_of_tpus(as_on_a_tpu):
    """Outputs and gradients, rows and heads split over devices: those of einsum."""
    rng = np.random.default_rng(2)
    given = [jnp.asarray(rng.normal(size=(4, 24, 2, 16)), jnp.float32) for _ in "qkv"]
    seen = sees("padded", 4, 24)

    @partial(jax.jit, static_argnums=0)
    def results(name, *three):
        attend = registry.ATTENTIONS[name]
        output, pull = jax.vjp(lambda *xs: attend(*xs, seen, 0.0, None)[0], *three)
        return output, *pull(jnp.cos(output))

    expected = results("einsum", *given)
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), (AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        found = results("fused", *given)
    assert len(found[0].sharding.device_set) == 8
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


@pytest.mark.slow
def test_dropout_is_never_left_out_in_silence(as_on_a_tpu):
    x, seen = (
        jnp.ones((1, 8, 1, 16)),
        AttentionMask.from_input_mask(jnp.ones((1, 8), jnp.int32)),
    )
    fused = registry.ATTENTIONS["fused"]
    with pytest.raises(ValueError, match=r"fused: has no dropout here; rate=0\.1"):
        fused(x, x, x, seen, 0.1, jax.random.key(0))
    assert fused(x, x, x, seen, 0.1, None)[0].shape == x.shape
