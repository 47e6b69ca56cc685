"""The surest mistakes, beside SciPy's softmax."""

import numpy as np
from scipy.special import softmax

from bert_jax.tasks import mistakes


def test_the_surest_come_first_and_right_answers_never():
    rng = np.random.default_rng(0)
    logits = 4 * rng.standard_normal((50, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 50)
    found = mistakes.surest(logits, labels)
    shares = softmax(logits.astype(np.float64), axis=1)
    wrong = np.flatnonzero(shares.argmax(axis=1) != labels)
    assert sorted(x.record for x in found) == wrong.tolist()
    sure = sorted(shares[wrong].max(axis=1), reverse=True)
    np.testing.assert_allclose([x.probability for x in found], sure)
    assert all(x.label == labels[x.record] != x.guess for x in found)
