"""Calibration against torch, scikit-learn and a loop over bins."""

import numpy as np
import pytest
from scipy import special
from sklearn import metrics

from bert_jax.scores import calibration

RNG = np.random.default_rng(0)


def test_expected_calibration_error_is_the_mean_gap_of_bins():
    shares = special.softmax(2 * RNG.normal(size=(500, 4)), axis=1)
    labels = RNG.integers(0, 4, 500)
    gap = 0.0
    for low in np.arange(15) / 15:
        confidence = shares.max(axis=1)
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            right = (shares.argmax(axis=1) == labels)[inside].mean()
            gap += inside.mean() * abs(right - confidence[inside].mean())
    found = calibration.expected_calibration_error(shares, labels)
    assert found == pytest.approx(gap, rel=1e-9)
    assert calibration.expected_calibration_error(np.eye(4), np.arange(4)) == 0.0


@pytest.mark.parametrize("several", [False, True])
def test_fit_temperature_has_the_least_cross_entropy(torch, several):
    true = RNG.normal(size=(2000, 3))
    if several:
        targets = (RNG.random(true.shape) < special.expit(true)).astype(int)
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        given = torch.tensor(targets, dtype=torch.float64)
    else:
        shares = special.softmax(true, axis=1)
        targets = np.array([RNG.choice(3, p=row) for row in shares])
        loss, given = torch.nn.functional.cross_entropy, torch.tensor(targets)
    logits = 3.0 * true  # too sure of themselves
    found = calibration.fit_temperature(logits, targets)
    assert found == pytest.approx(3.0, rel=0.15)
    at = torch.tensor(found, dtype=torch.float64, requires_grad=True)
    loss(torch.tensor(logits) / at, given).backward()
    assert abs(at.grad.item()) < 1e-5  # a minimum


@pytest.mark.parametrize("seed", range(2))
def test_best_threshold_has_the_best_f1(seed):
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=60), 1).astype(np.float32)  # some are equal
    targets = (rng.random(60) < special.expit(2 * logits - 1)).astype(int)
    found = calibration.best_threshold(logits, targets)
    best = max(
        metrics.f1_score(targets, logits >= cut)
        for cut in np.arange(-40, 40) / 10 + 0.05
    )
    assert metrics.f1_score(targets, logits >= found) == pytest.approx(best)
    assert calibration.best_threshold(logits, np.zeros(60, int)) == 0.0
