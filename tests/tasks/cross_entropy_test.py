"""Cross entropy and its gradient, against Optax's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.tasks.cross_entropy import class_cross_entropy, cross_entropy


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_values_and_gradients_are_optax_s(scale):
    rng = np.random.default_rng(0)
    logits = jnp.asarray(scale * rng.normal(size=(4, 5, 97)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 97, (4, 5)), jnp.int32)
    weights = jnp.asarray(rng.random((4, 5)), jnp.float32)
    results = []
    for loss in (cross_entropy, optax.softmax_cross_entropy_with_integer_labels):
        total = lambda x, loss=loss: jnp.sum(weights * loss(x, labels))  # noqa: E731
        results.append((loss(logits, labels), jax.jit(jax.grad(total))(logits)))
    for own, expected in zip(*results, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.slow
def test_logit_of_minus_infinity_is_never_right():
    logits = jnp.array([[0.0, -jnp.inf, 0.0]])
    np.testing.assert_allclose(cross_entropy(logits, jnp.array([2])), np.log(2.0))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_of_classes_with_smoothing_is_torchs(torch, smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 4)).astype(np.float32)
    labels = np.array([0, 3, 1, 2, 2, 0], np.int32)
    found = class_cross_entropy(jnp.asarray(logits), jnp.asarray(labels), smoothing)
    expected = torch.nn.functional.cross_entropy(
        torch.tensor(logits),
        torch.tensor(labels).long(),
        reduction="none",
        label_smoothing=smoothing,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
