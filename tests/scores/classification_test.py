"""Scores equal scikit-learn's and scipy's, on random and on awkward cases."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import special, stats
from sklearn import metrics

from bert_jax.scores import calibration, classification


def random_classes(classes):
    """Sixty pairs of series, some short, some nearly of one class."""
    rng = np.random.default_rng(classes)
    for _ in range(60):
        size = rng.integers(1, 60)
        shares = rng.dirichlet(np.full(classes, 0.5))
        labels = rng.choice(classes, size, p=shares)
        noise = rng.choice(classes, size)
        yield labels, np.where(rng.random(size) < rng.random(), labels, noise)


def binary_cases():
    """And all pairs of one to three labels."""
    yield from random_classes(2)
    for size in (1, 2, 3):
        series = map(np.array, itertools.product((0, 1), repeat=size))
        yield from itertools.product(series, repeat=2)


def test_accuracy():
    for labels, guesses in [*binary_cases(), *random_classes(5)]:
        expected = metrics.accuracy_score(labels, guesses)
        assert classification.accuracy(labels, guesses) == pytest.approx(expected)


def test_f1_of_each_class_and_their_mean():
    for labels, guesses in [*binary_cases(), *random_classes(5)]:
        given = {"y_true": labels, "y_pred": guesses, "zero_division": 0}
        each = metrics.f1_score(**given, labels=range(5), average=None)
        found = classification.f1_of_each(labels, guesses, 5)
        np.testing.assert_allclose(found, each)
        # Over the classes that are present, as scikit-learn has it.
        expected = metrics.f1_score(**given, average="macro")
        assert classification.macro_f1(labels, guesses) == pytest.approx(expected)


def test_scores_with_weights():
    rng = np.random.default_rng(0)
    for labels, guesses in [*random_classes(2), *random_classes(4)]:
        weights = rng.choice([0.0, 0.3, 1.0, 2.5], len(labels))
        if not weights.any():
            continue
        given = {"y_true": labels, "y_pred": guesses, "sample_weight": weights}
        ours = (labels, guesses, weights)
        expected = metrics.accuracy_score(**given)
        assert classification.accuracy(*ours) == pytest.approx(expected)
        zero = {"zero_division": 0, "average": None, "labels": range(4)}
        each = classification.f1_of_each(labels, guesses, 4, weights)
        np.testing.assert_allclose(each, metrics.f1_score(**given, **zero))
        assert classification.binary_f1(*ours) == pytest.approx(each[1])
        expected = metrics.matthews_corrcoef(**given)
        assert classification.matthews(*ours) == pytest.approx(expected, abs=1e-7)
    labels, guesses = rng.integers(0, 2, (2, 30, 3))
    weights = rng.random(30)
    given = {"y_true": labels, "y_pred": guesses, "sample_weight": weights}
    ours = (labels, guesses, weights)
    for found, expected in (
        (classification.exact_match(*ours), metrics.accuracy_score(**given)),
        (classification.macro_f1(*ours), metrics.f1_score(**given, average="macro")),
        (classification.binary_f1(*ours), metrics.f1_score(**given, average="micro")),
    ):
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("rounded", [True, False])
def test_ranks_of_two_classes(rounded):
    rng = np.random.default_rng(1)
    for size in (2, 3, 10, 200):
        labels = np.arange(size) % 3 == 0
        values = labels + rng.normal(size=size)
        values = np.round(values) if rounded else values  # with ties
        for weights in (None, rng.random(size) + 0.1):
            for name in ("average_precision", "roc_auc"):
                function = getattr(metrics, f"{name}_score")
                expected = function(labels, values, sample_weight=weights)
                ours = getattr(classification, name)
                found = ours(labels.astype(int), values, weights)
                assert found == pytest.approx(expected)
    constant = np.full(4, -np.inf), np.array([1, 0, 0, 0])
    assert classification.roc_auc(constant[1], constant[0]) == 0.5
    assert classification.average_precision(constant[1], constant[0]) == 0.25


def test_f1_of_each_of_several_labels():
    rng = np.random.default_rng(0)
    for size in (1, 2, 40):
        labels, guesses = rng.integers(0, 2, (2, size, 3))
        labels[:, 2] = guesses[:, 2] = 0
        given = {"y_true": labels, "y_pred": guesses, "zero_division": 0}
        found = classification.f1_of_each(labels, guesses, 3)
        np.testing.assert_allclose(found, metrics.f1_score(**given, average=None))
        expected = metrics.f1_score(**given, average="macro")
        assert classification.macro_f1(labels, guesses) == pytest.approx(expected)


def test_f1():
    for labels, guesses in binary_cases():
        expected = metrics.f1_score(labels, guesses, zero_division=0)
        assert classification.binary_f1(labels, guesses) == pytest.approx(expected)


@pytest.mark.slow
def test_matthews():
    with warnings.catch_warnings():  # scikit-learn's: a single class
        warnings.simplefilter("ignore")
        for labels, guesses in [*binary_cases(), *random_classes(4)]:
            expected = metrics.matthews_corrcoef(labels, guesses)
            assert classification.matthews(labels, guesses) == pytest.approx(
                expected, abs=1e-12
            )


def test_matthews_of_many_examples():
    labels = np.zeros(2_000_000, np.int32)
    labels[:1_000_000] = 1
    assert classification.matthews(labels, labels) == 1.0


@pytest.mark.parametrize("labels", [2, 7])
def test_scores_of_several_labels(labels):
    rng = np.random.default_rng(0)
    for _ in range(40):
        shape = (rng.integers(1, 20), labels)
        truth = (rng.random(shape) < rng.random()).astype(int)
        guess = np.where(rng.random(shape) < 0.7, truth, 1 - truth)
        expected = metrics.f1_score(truth, guess, average="micro", zero_division=0)
        assert classification.binary_f1(truth, guess) == pytest.approx(expected)
        expected = metrics.accuracy_score(truth, guess)
        assert classification.exact_match(truth, guess) == pytest.approx(expected)


def test_correlations():
    rng = np.random.default_rng(0)
    for case in range(300):
        size = int(rng.integers(2, 80))
        x = rng.normal(size=size) * 10.0 ** rng.integers(-3, 4)
        y = rng.random() * x + rng.normal(size=size)
        if case % 3 == 0:  # ties, as STS-B's labels have them
            x, y = np.round(x), np.round(y, 1)
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            continue
        pearson, spearman = stats.pearsonr(x, y)[0], stats.spearmanr(x, y)[0]
        assert classification.pearson(x, y) == pytest.approx(pearson, abs=1e-12)
        assert classification.spearman(x, y) == pytest.approx(spearman, abs=1e-12)


def test_correlation_of_float32_is_that_of_the_same_numbers():
    """Logits are float32. STS-B's labels lie close together."""
    labels = np.array([5.0, 4.75, 4.8, 0.2])
    guesses = np.array([3.1, 3.1000001, 2.9, 0.4], np.float32)
    expected = stats.pearsonr(labels, guesses.astype(np.float64))[0]
    assert classification.pearson(labels, guesses) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("score", [classification.pearson, classification.spearman])
@pytest.mark.parametrize(
    ("labels", "guesses"),
    [
        ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]),
        ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]),
        ([1.0], [2.0]),
    ],
)
def test_correlation_with_a_constant_is_0(score, labels, guesses):
    """scipy gives nan (or for one pair an error) and a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score(np.array(labels), np.array(guesses)) == 0.0


def test_numbers_that_are_none_stay_visible():
    labels, guesses = np.array([1.0, 2.0, 3.0]), np.array([1.0, np.nan, 2.0])
    assert np.isnan(classification.pearson(labels, guesses))


def test_probabilities_are_those_of_scipy():
    scales = np.logspace(-3, 3, 50)[:, None]
    for row in np.random.default_rng(0).normal(size=(50, 7)) * scales:
        np.testing.assert_array_equal(classification.softmax(row), special.softmax(row))
        ours, theirs = calibration.sigmoid(row), special.expit(row)
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
