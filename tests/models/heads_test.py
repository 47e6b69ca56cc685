"""Heads: logits in float32 from features in bfloat16, as a double-precision sum."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import heads as model_heads
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.layers import Dense
from bert_jax.tasks.cross_entropy import cross_entropy
from tests.close import GRADIENT_TERMS, assert_close
from tests.micro import bert_config, initial_params

SIZES = {"vocab_size": 50, "hidden_size": 256, "num_hidden_layers": 1}
SIZES |= {"num_attention_heads": 4, "intermediate_size": 64}
CONFIG = bert_config(**SIZES, max_position_embeddings=128, dtype="bfloat16")


def inputs(rows=64, length=32):
    ids = np.random.default_rng(0).integers(0, 50, (rows, length)).astype(np.int32)
    return jnp.asarray(ids), jnp.ones_like(ids), jnp.zeros_like(ids)


def with_heads(*heads):
    """A model and its parameters, far from their initial values."""
    rng = np.random.default_rng(0)
    model = BertWithHeads(CONFIG, heads)
    params = initial_params(functools.partial(model_heads.init_model, model))
    return model, jax.tree.map(
        lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), params
    )


def logits_of(outputs, head):
    """[..., outputs of the linear layer], one row for each of its inputs."""
    if head == "question_answering":
        return jnp.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    return outputs["next_sentence_logits"]


def double(x):
    return np.asarray(x.astype(jnp.bfloat16), np.float64)


@pytest.mark.slow
def test_logits_are_products_in_float32_of_bfloat16_features():
    model, params = with_heads("next_sentence", "question_answering")
    given = {"params": params}, *inputs()
    # Else XLA may leave out the rounding of the features.
    rounds = {"xla_allow_excess_precision": False}
    outputs = jax.jit(model.apply).lower(*given).compile(rounds)(*given)
    for head, source in (
        ("next_sentence", outputs["pooled"]),
        ("question_answering", outputs["hidden_states"][-1]),
    ):
        assert source.dtype == jnp.bfloat16
        found = logits_of(outputs, head)
        assert found.dtype == jnp.float32
        kernel, bias = (np.float64(params[head][name]) for name in ("kernel", "bias"))
        expected = double(source) @ kernel + bias
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, atol=1e-6 * scale, rtol=0)


@pytest.mark.parametrize("size", [1, 3])
def test_gradients_of_a_head(size):
    """The bias's and kernel's are float32, the features' are rounded to bfloat16."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(64, 256)), jnp.bfloat16)
    weights = rng.normal(size=(64, size)).astype(np.float32)
    dense = Dense(CONFIG, (size,), ("embed", "labels"), logits=True)
    params = nn.meta.unbox(dense.init(jax.random.key(0), x))

    def total(params, x):
        return jnp.sum(dense.apply(params, x) * weights)

    own, features = jax.jit(jax.grad(total, argnums=(0, 1)))(params, x)
    own = own["params"]
    assert own["kernel"].dtype == own["bias"].dtype == jnp.float32
    assert_close(own["bias"], weights.sum(0))
    kernel = double(x).T @ weights
    assert_close(own["kernel"], kernel, terms=GRADIENT_TERMS)
    assert features.dtype == jnp.bfloat16
    expected = weights @ np.float64(params["params"]["kernel"]).T
    limit = 2**-8 * np.abs(expected).max()  # bfloat16
    found = features.astype(jnp.float32)
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_losses_of_logits_that_training_rounds(platform, dtype, monkeypatch):
    """The loss and its gradients, by rounded inputs in double precision, with a
    vocabulary that no matrix unit likes."""
    monkeypatch.setattr(model_heads, "platform_name", lambda: platform)
    rng = np.random.default_rng(0)
    shapes = ((3, 4, 8), (37, 8), 37)
    hidden, table, bias = (np.float32(rng.normal(size=shape)) for shape in shapes)
    labels = jnp.asarray(rng.integers(0, 37, (3, 4)))
    hidden, table = (jnp.asarray(x, dtype).astype(np.float32) for x in (hidden, table))

    def loss(hidden, table, bias):
        given = (hidden.astype(dtype), table, bias)
        logits = model_heads.vocabulary_logits(*given, training=True)
        assert logits.shape == (3, 4, 37)
        assert logits.dtype == ("float32" if platform == "cpu" else dtype)
        losses = cross_entropy(logits, labels)
        assert losses.dtype == jnp.float32
        return losses.sum()

    found = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(hidden, table, bias)
    wide = np.asarray(hidden, np.float64) @ np.asarray(table, np.float64).T + bias
    probs = np.exp(wide - wide.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    picked = np.take_along_axis(probs, np.asarray(labels)[..., None], -1)
    gradient = probs - np.eye(37)[np.asarray(labels)]
    flat = gradient.reshape(-1, 37)
    by_hidden = gradient @ np.asarray(table, np.float64)
    by_table = flat.T @ np.asarray(hidden, np.float64).reshape(-1, 8)
    expected = (-np.log(picked).sum(), by_hidden, by_table, flat.sum(0))
    # A logit's rounding is relative to its size, up to 10 here, and so is the loss's.
    error = 8 * float(jnp.finfo(dtype).eps)
    for one, other in zip(jax.tree.leaves(found), expected, strict=True):
        assert abs(one - other).max() <= error * abs(other).max()
