"""Classifiers on frozen vectors: logistic regression and the choice of its penalty."""

import numpy as np
import pytest
from scipy import special

from experiments.claims import frozen_vectors


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_is_scikit_learns(classes):
    linear_model = pytest.importorskip(
        "sklearn.linear_model", reason="needs the test extra"
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5))
    y = (x @ rng.normal(size=(5, classes)) + rng.normal(size=(60, classes))).argmax(1)
    for penalty in (1.0, 0.01):
        found = frozen_vectors.logistic(x, y, classes, penalty)
        model = linear_model.LogisticRegression(C=1 / (60 * penalty), tol=1e-10)
        if classes == 2:  # one set of weights: half of the penalty's
            model.C *= 2
        model.fit(x, y)
        ours = special.softmax(x @ found[:-1] + found[-1], axis=1)
        np.testing.assert_allclose(ours, model.predict_proba(x), atol=2e-4)
        accuracy, loss = frozen_vectors.scores(found, x, y)
        assert accuracy == pytest.approx(model.score(x, y))
        expected = -np.log(model.predict_proba(x)[np.arange(60), y]).mean()
        assert loss == pytest.approx(expected, abs=1e-4)


def test_the_penalty_fits_the_data():
    """Noise gets a large one, and classes that a line parts a small one."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 30)), np.arange(40) % 2
    noise = frozen_vectors.classified((x, y), (x, y), 2, seed=0)
    assert noise["penalty"] >= 1
    x[:, 0] += 20 * y
    parted = frozen_vectors.classified((x, y), (x + 0.1, y), 2, seed=0)
    assert parted["penalty"] < 0.1 and parted["test_accuracy"] == 1.0
    assert parted["train_loss"] < 0.1
    two = frozen_vectors.classified((x[:2], y[:2]), (x, y), 2, seed=0)
    assert two["train_accuracy"] == 1.0 and np.isfinite(two["test_loss"])
