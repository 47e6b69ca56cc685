"""Scores of classification and regression, as GLUE computes them: fractions of 1.

Accuracy, F1 and the Matthews correlation equal scikit-learn's accuracy_score, f1_score
and matthews_corrcoef. Pearson and Spearman equal scipy.stats'. If one series is
constant, the correlation is undefined, and scipy returns nan. Here it is 0.0, as in
scikit-learn's Matthews correlation, so that checkpoints can be compared. At least one
example is required.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int, Num


def accuracy(labels: Num[np.ndarray, "n"], guesses: Num[np.ndarray, "n"]) -> float:
    """Returns the fraction of correct guesses."""
    return float(np.mean(labels == guesses))


def binary_f1(labels: Int[np.ndarray, "*n"], guesses: Int[np.ndarray, "*n"]) -> float:
    """Returns the F1 of class 1, or 0.0 where no label and no guess is 1.

    For several labels at once (rows of 0 and 1), it is the F1 over all labels of all
    examples.
    """
    both = int(np.sum((labels == 1) & (guesses == 1)))
    whole = int(np.sum(labels == 1) + np.sum(guesses == 1))
    return 2 * both / whole if whole else 0.0


def f1_of_each(
    labels: Int[np.ndarray, "*n"], guesses: Int[np.ndarray, "*n"], classes: int
) -> Float[np.ndarray, "classes"]:
    """Returns the F1 of each class, or 0.0 where no label and no guess has the class.

    Args:
      labels: Numbers of classes, [n], or for several labels at once, 0 and 1,
        [n, classes].
    """
    if labels.ndim > 1:
        right, there, guessed = (
            x.sum(axis=0) for x in (labels * guesses, labels, guesses)
        )
    else:
        right, there, guessed = (
            np.bincount(x, minlength=classes)
            for x in (labels[labels == guesses], labels, guesses)
        )
    return 2 * right / np.maximum(there + guessed, 1)


def macro_f1(labels: Int[np.ndarray, "*n"], guesses: Int[np.ndarray, "*n"]) -> float:
    """Returns the mean F1 of the classes, each counted once whatever its frequency.

    As in scikit-learn, classes without any label or guess are left out. With several
    labels at once, no label is left out.
    """
    if labels.ndim > 1:
        return float(f1_of_each(labels, guesses, labels.shape[1]).mean())
    there = np.union1d(labels, guesses)
    return float(f1_of_each(labels, guesses, int(there[-1]) + 1)[there].mean())


def matthews(labels: Int[np.ndarray, "n"], guesses: Int[np.ndarray, "n"]) -> float:
    """Returns the Matthews correlation for any number of classes (Gorodkin 2004: R_K).

    It is 0.0 where all labels or all guesses are one class.
    """
    classes = np.union1d(labels, guesses)
    # Python integers: products of counts exceed 64 bits in large sets.
    of_labels = [int(np.sum(labels == c)) for c in classes]
    of_guesses = [int(np.sum(guesses == c)) for c in classes]
    count, right = len(labels), int(np.sum(labels == guesses))
    covariance = right * count - _dot(of_labels, of_guesses)
    spread = (count**2 - _dot(of_labels, of_labels)) * (
        count**2 - _dot(of_guesses, of_guesses)
    )
    return covariance / math.sqrt(spread) if spread else 0.0


def pearson(labels: Float[np.ndarray, "n"], guesses: Float[np.ndarray, "n"]) -> float:
    """Returns Pearson's correlation, or 0.0 where one series is constant."""
    from scipy import stats  # takes a second to import

    return _correlation(stats.pearsonr, labels, guesses)


def spearman(labels: Float[np.ndarray, "n"], guesses: Float[np.ndarray, "n"]) -> float:
    """Returns Spearman's rank correlation, with ties at their mean rank.

    It is 0.0 where one series is constant.
    """
    from scipy import stats

    return _correlation(stats.spearmanr, labels, guesses)


def exact_match(
    labels: Int[np.ndarray, "n classes"], guesses: Int[np.ndarray, "n classes"]
) -> float:
    """Returns the fraction of examples (rows of 0 and 1) with every label correct."""
    return float(np.mean(np.all(labels == guesses, axis=1)))


def softmax(logits: Float[np.ndarray, " classes"]) -> Float[np.ndarray, " classes"]:
    """Returns probabilities of classes that exclude each other."""
    shares = np.exp(logits - np.max(logits))  # SciPy takes a fifth of a second
    return shares / np.sum(shares)


def sigmoid(logits: Float[np.ndarray, " labels"]) -> Float[np.ndarray, " labels"]:
    """Returns probabilities of labels, any number of which may apply."""
    return np.exp(-np.logaddexp(0.0, -logits))


def _correlation(function: Callable, labels: np.ndarray, guesses: np.ndarray) -> float:
    x, y = (np.asarray(series, np.float64) for series in (labels, guesses))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(function(x, y).statistic)


def _dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))
