"""The sampled softmax against NumPy: who is drawn how often, and the loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.families.elmo import sampled_softmax

CLASSES, SAMPLES = 40, 12


def probabilities():
    ids = np.arange(CLASSES)
    return np.log((ids + 2) / (ids + 1)) / np.log(CLASSES + 1)


def drawn_with_repetitions(rng):
    """Draws as TensorFlow does, until there are enough distinct classes."""
    found, draws = [], 0
    while len(found) < SAMPLES:
        draws += 1
        one = rng.choice(CLASSES, p=probabilities())
        if one not in found:
            found.append(one)
    return found, draws


@pytest.mark.slow
def test_classes_are_drawn_as_often_as_tensorflow_draws_them():
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = jax.vmap(lambda key: sampled_softmax.draw(key, CLASSES, SAMPLES))
    sample = draw(keys)
    ids = np.asarray(sample.ids)
    assert all(len(set(row)) == SAMPLES for row in ids[:100])
    ours = np.bincount(ids.ravel(), minlength=CLASSES) / len(ids)
    rng = np.random.default_rng(0)
    theirs, expected = np.zeros(CLASSES), np.zeros(CLASSES)
    for _ in range(1500):
        found, draws = drawn_with_repetitions(rng)
        theirs[found] += 1 / 1500
        expected += -np.expm1(draws * np.log1p(-probabilities())) / 1500
    np.testing.assert_allclose(ours, theirs, atol=0.05)
    # The correction of the logits: each class counts as one, in the mean, and is
    # near to TensorFlow's correction.
    every = jnp.arange(CLASSES)
    log = jax.vmap(lambda one: one.log_expected(every, CLASSES))(sample)
    own = np.exp(np.asarray(log))
    was_drawn = (ids[:, :, None] == np.arange(CLASSES)).any(1)
    np.testing.assert_allclose((was_drawn / own).mean(0), 1, atol=0.15)
    np.testing.assert_allclose(own.mean(0), expected, atol=0.05)


@pytest.mark.slow
def test_loss_is_that_of_a_numpy_transcription():
    rng = np.random.default_rng(1)
    hidden, kernel = rng.normal(size=(5, 3)), rng.normal(size=(CLASSES, 3))
    bias, targets = rng.normal(size=CLASSES), np.array([0, 1, 7, 39, 7])
    sample = sampled_softmax.draw(jax.random.key(3), CLASSES, SAMPLES)
    q = 1 - np.exp(-probabilities() * float(sample.draws))
    expected = []
    for vector, target in zip(hidden, targets, strict=True):
        logits = kernel @ vector + bias - np.log(q)
        others = [logits[i] for i in np.asarray(sample.ids) if i != target]
        expected.append(
            np.log(np.exp([logits[target], *others]).sum()) - logits[target]
        )
    found = sampled_softmax.losses(
        *(jnp.asarray(x, jnp.float32) for x in (hidden,)),
        jnp.asarray(targets),
        *(jnp.asarray(x, jnp.float32) for x in (kernel, bias)),
        sample,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert set(np.asarray(sample.ids)) & set(targets)  # accidental hits were met
