"""Heads: logits in float32 from features in bfloat16, as a double-precision sum."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from micro import bert_config, init_pretraining, initial_params

from bert_jax.models import heads
from bert_jax.models.architectures import LINEAR_HEADS, BertWithHeads
from bert_jax.models.heads import BertForPreTraining
from bert_jax.models.layers import Dense
from bert_jax.tasks.cross_entropy import cross_entropy
from tests.close import GRADIENT_TERMS, assert_close

CONFIG = bert_config(
    vocab_size=50,
    hidden_size=256,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=128,
    dtype="bfloat16",
)
LINEAR = [*LINEAR_HEADS]
POOLED = ("next_sentence", "sequence_classification", "multiple_choice")
SIZES = {"next_sentence": 2, "question_answering": 2, "multiple_choice": 1}


def inputs(head, rows=64, length=32):
    # The encoder has as many rows of choices as of others.
    shape = (rows // 2, 2, length) if head == "multiple_choice" else (rows, length)
    ids = np.random.default_rng(0).integers(0, 50, shape).astype(np.int32)
    return jnp.asarray(ids), jnp.ones_like(ids), jnp.zeros_like(ids)


@functools.cache
def pretraining_params():
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32),
        initial_params(functools.partial(init_pretraining, CONFIG)),
    )


def with_head(head):
    """The model and its parameters. The encoder's are drawn once for all heads."""
    rng, size = np.random.default_rng(1), SIZES.get(head, 3)
    shapes = {"kernel": (CONFIG.hidden_size, size), "bias": (size,)}
    drawn = {
        name: jnp.asarray(0.1 * rng.normal(size=shape), jnp.float32)
        for name, shape in shapes.items()
    }
    model = BertWithHeads(CONFIG, (head,), labels=3)
    return model, {"bert": pretraining_params()["bert"], head: drawn}


def logits_of(outputs, head):
    """[..., outputs of the linear layer], one row for each of its inputs."""
    if head == "question_answering":
        return jnp.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    name = "next_sentence_logits" if head == "next_sentence" else "logits"
    given = outputs[name]
    return given.reshape(-1, 1) if head == "multiple_choice" else given


def double(x):
    return np.asarray(x.astype(jnp.bfloat16), np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("head", LINEAR)
def test_logits_are_products_in_float32_of_bfloat16_features(head):
    model, params = with_head(head)
    # Not compiled as a whole, where XLA may leave out the rounding of the features.
    outputs = model.apply({"params": params}, *inputs(head))
    source = outputs["pooled"] if head in POOLED else outputs["hidden_states"][-1]
    assert source.dtype == jnp.bfloat16
    found = logits_of(outputs, head)
    assert found.dtype == jnp.float32
    kernel, bias = (np.float64(params[head][name]) for name in ("kernel", "bias"))
    expected = double(source) @ kernel + bias
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=1e-6 * scale, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["question_answering", "multiple_choice"])
def test_logits_of_a_compiled_model_do_not_tie(head):
    """Of bfloat16 there are 256 between a power of 2 and the next."""
    model, params = with_head(head)
    outputs = jax.jit(model.apply)({"params": params}, *inputs(head))
    found = logits_of(outputs, head)
    assert len(np.unique(found)) > 0.95 * found.size


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


@pytest.mark.slow
def test_next_sentence_logits_of_pretraining():
    ids, mask, segments = inputs("next_sentence")
    params = pretraining_params()
    positions = jnp.ones((len(ids), 2), jnp.int32)
    apply = BertForPreTraining(CONFIG).apply
    found = apply({"params": params}, ids, mask, segments, positions)
    found = found["next_sentence_logits"]
    model = BertWithHeads(CONFIG, ("next_sentence",))
    kept = {name: params[name] for name in ("bert", "next_sentence")}
    other = model.apply({"params": kept}, ids, mask, segments)["next_sentence_logits"]
    assert found.dtype == jnp.float32 and len(np.unique(found)) > 0.95 * found.size
    # In bfloat16, where each multiplies other vectors together with those of [CLS].
    np.testing.assert_allclose(found, other, rtol=2**-7)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_losses_of_logits_that_training_rounds(platform, dtype, monkeypatch):
    """The loss and its gradients, by rounded inputs in double precision, with a
    vocabulary that no matrix unit likes."""
    monkeypatch.setattr(heads, "platform_name", lambda: platform)
    rng = np.random.default_rng(0)
    hidden, table, bias = (
        rng.normal(size=shape).astype(np.float32) for shape in ((3, 4, 8), (37, 8), 37)
    )
    labels = jnp.asarray(rng.integers(0, 37, (3, 4)))
    hidden, table = (jnp.asarray(x, dtype).astype(np.float32) for x in (hidden, table))

    def loss(hidden, table, bias):
        logits = heads.vocabulary_logits(
            hidden.astype(dtype), table, bias, training=True
        )
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
    expected = (
        -np.log(picked).sum(),
        (
            gradient @ np.asarray(table, np.float64),
            flat.T @ np.asarray(hidden, np.float64).reshape(-1, 8),
            flat.sum(0),
        ),
    )
    # A logit's rounding is relative to its size, up to 10 here, and so is the loss's.
    error = 8 * float(jnp.finfo(dtype).eps)
    for one, other in zip(
        jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        assert abs(one - other).max() <= error * abs(other).max()
