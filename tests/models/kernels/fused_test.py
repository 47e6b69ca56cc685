"""The fused kernel, interpreted, against the einsum attention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bert_jax.models import attention, heads, layers
from bert_jax.models.attention import AttentionMask, einsum_attention
from bert_jax.models.heads import BertForPreTraining
from bert_jax.models.kernels import activation, fused, norm, whole_row
from bert_jax.models.kernels.fused import fused_attention
from bert_jax.tasks.cross_entropy import cross_entropy
from tests.attending import sees, values
from tests.micro import bert_config, small_config
from tests.models.small_bert import initial_params


def inputs(shape, dtype):
    """Queries, keys and values in one array, their biases, the output's gradient."""
    *three, gradient = values(shape, dtype)
    _, _, heads, size = shape
    bias = np.random.default_rng(2).normal(size=(heads, 3, size))
    return jnp.stack(three, axis=3), jnp.asarray(bias, "float32"), gradient


def interpreted(packed, bias, seen, *rest):
    packed = (packed + jax.lax.stop_gradient(bias)).astype(packed.dtype)
    given = (packed, seen.ids, *rest, seen.window)
    return fused_attention(*given, bias=bias, interpret=True)


def of_einsum(packed, bias, *rest):
    packed = (packed + bias).astype(packed.dtype)
    return einsum_attention(*jnp.moveaxis(packed, 3, 0), *rest)[0]


def results(attend, given, seen, rate, causal=False):
    """The output, and the gradients of packed and bias."""

    @jax.jit
    def compute(packed, bias, gradient):
        rest = (seen, rate, jax.random.key(3), causal)
        output, pull = jax.vjp(lambda *each: attend(*each, *rest), packed, bias)
        return output, *pull(gradient)

    return compute(*given)


def assert_alike(found, expected, error=2e-6):
    """`error` is of an array's largest element, if that is above 1."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        one, other = np.float32(one), np.float32(other)
        most = max(1, abs(other).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=error * most)


BLOCKS, ODD = (2, 128, 2, 64), (3, 40, 3, 16)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "dtype", "rate", "kind"),
    [
        (BLOCKS, "float32", 0.1, "padded"),
        (ODD, "float32", 0.1, "packed"),
        (ODD, "float32", 0.0, "causal"),
        ((1, 96, 2, 64), "bfloat16", 0.1, "packed"),
    ],
)
def test_outputs_and_gradients_are_the_einsum_s(shape, dtype, rate, kind):
    """With dropout too: the same elements are dropped."""
    error = 2e-6 if dtype == "float32" else 2**-6
    given = inputs(shape, dtype)
    seen = sees("packed" if kind == "causal" else kind, *shape[:2])
    found, expected = (
        results(attend, given, seen, rate, kind == "causal")
        for attend in (interpreted, of_einsum)
    )
    assert_alike(found, expected, error)


@pytest.mark.parametrize(("length", "kind"), [(128, "packed"), (64, "causal")])
def test_program_of_a_whole_row(length, kind, monkeypatch):
    monkeypatch.setattr(fused, "tile_sizes", lambda *_: fused.Tiling(64, whole=True))
    given = inputs((1, length, 2, 64), "float32")
    seen = sees("packed" if kind == "causal" else kind, 1, length)
    found, expected = (
        results(attend, given, seen, 0.1, kind == "causal")
        for attend in (interpreted, of_einsum)
    )
    assert_alike(found, expected)


@pytest.mark.parametrize(
    ("shape", "window", "causal"),
    [(BLOCKS, 70, True), (ODD, 16, False)],
)
def test_windows_are_the_einsum_s(shape, window, causal):
    given, length = inputs(shape, "float32"), shape[1]
    ids = jnp.tile(jnp.arange(length) >= 3 * length // 4, (shape[0], 1)).astype(int)
    seen = AttentionMask(ids, ids).with_window(window)
    found, expected, whole = (
        results(attend, given, kept, 0.1, causal)
        for attend, kept in (
            *((interpreted, seen), (of_einsum, seen)),
            (of_einsum, seen.with_window(0)),
        )
    )
    assert_alike(found, expected)
    assert abs(expected[0] - whole[0]).max() > 0.1 or window > length


@pytest.mark.slow
def test_keys_that_a_query_does_not_see_change_no_bit():
    packed, bias, gradient = inputs((1, 128, 2, 64), "float32")
    ids = jnp.asarray(np.arange(128)[None] // 50, jnp.int32)
    hidden = (ids[0] != 1)[:, None, None] & (jnp.arange(3) > 0)  # keys and values
    changed = jnp.where(hidden[..., None], -packed, packed)
    one, two = (
        results(interpreted, (each, bias, gradient), AttentionMask(ids, ids), 0.1)
        for each in (packed, changed)
    )
    for before, after in zip(one[:2], two[:2], strict=True):
        np.testing.assert_array_equal(before[:, 50:100], after[:, 50:100])
        assert not np.array_equal(before, after)


@pytest.mark.slow
def test_model_on_a_mesh(monkeypatch):
    """The whole model's gradients, split over devices: those of einsum on one."""
    as_on_a_gpu = functools.partial(fused_attention, interpret=True)
    monkeypatch.setattr(fused, "fused_attention", as_on_a_gpu)
    params = initial_params(small_config(num_hidden_layers=1))
    ids = jax.random.randint(jax.random.key(1), (8, 24), 5, 50)
    mask = (jnp.arange(24) < 20).astype(jnp.int32) * jnp.ones_like(ids)

    def loss(params, attention):
        config = small_config(num_hidden_layers=1, attention=attention)
        model = BertForPreTraining(config)
        inputs = (ids, mask, jnp.zeros_like(ids), ids[:, :2] % 20, jax.random.key(2))
        return sum(
            jnp.sum(x**2) for x in model.apply({"params": params}, *inputs).values()
        )

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    expected = gradient(params, "einsum")
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), (AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        found = gradient(params, "fused")
    scale = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(expected))
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * scale)


# Loss and gradients of pre-training as GPUs and TPUs compute them, interpreted.


PLAIN = {"attention": "einsum", "epilogue": "xla"}
FUSED = {
    "gpu": {"attention": "fused", "epilogue": "fused"},
    "tpu": {"attention": "fused", "epilogue": "xla"},
}
KERNELS = [
    *((fused, "fused_attention"), (whole_row, "whole_row_attention")),
    *((norm, "fused_norm"), (activation, "fused_activation")),
]


def outcome(config):
    """The loss with dropout, and the gradients of all parameters in one vector."""
    params = initial_params(config)
    ids = jax.random.randint(jax.random.key(1), (8, 24), 5, 70)
    mask = (jnp.arange(24) < jnp.arange(17, 25)[:, None]).astype(jnp.int32)
    places = jnp.tile(jnp.array([2, 7, 11]), (8, 1))

    def loss(params):
        given = (ids, mask, mask - 1 + ids % 2, places, jax.random.key(2))
        found = BertForPreTraining(config).apply({"params": params}, *given)
        masked = cross_entropy(found["masked_lm_logits"], ids[:, :3])
        next_sentence = cross_entropy(found["next_sentence_logits"], ids[:, 0] % 2)
        return masked.mean() + next_sentence.mean()

    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    leaves = [np.float64(x).ravel() for x in jax.tree.leaves(gradients)]
    return float(value), np.concatenate(leaves)


@pytest.mark.parametrize(
    ("platform", "dtype"), [("gpu", "bfloat16"), ("tpu", "float32")]
)
def test_they_are_the_plain_ones(monkeypatch, platform, dtype):
    """Those in bfloat16 are about as far from float32's, whose distance is 6e-3."""
    sizes = {"vocab_size": 70, "hidden_size": 64, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 128}
    expected = wide = outcome(bert_config(**sizes, **PLAIN, dtype=dtype))
    if dtype != "float32":
        wide = outcome(bert_config(**sizes, **PLAIN, dtype="float32"))
    for module in (attention, heads, layers):
        monkeypatch.setattr(module, "platform_name", lambda: platform)
    for module, name in KERNELS:
        interpreted = functools.partial(getattr(module, name), interpret=True)
        monkeypatch.setattr(module, name, interpreted)
    found = outcome(bert_config(**sizes, **FUSED[platform], dtype=dtype))

    def distance(one, other):
        return np.linalg.norm(one[1] - other[1]) / np.linalg.norm(other[1])

    if dtype == "float32":
        assert found[0] == pytest.approx(expected[0], rel=1e-6)
        assert distance(found, expected) < 1e-6
    else:
        assert found[0] == pytest.approx(expected[0], rel=2e-3)
        assert distance(found, wide) < 1.25 * distance(expected, wide)
