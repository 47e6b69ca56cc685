"""Scores of classification and regression, as GLUE computes them: fractions of 1.

Accuracy, F1 and the Matthews correlation equal scikit-learn's accuracy_score, f1_score
and matthews_corrcoef. Pearson and Spearman equal scipy.stats'. If one series is
constant, the correlation is undefined, and scipy returns nan. Here it is 0.0, as in
scikit-learn's Matthews correlation, so that checkpoints can be compared. At least one
example is required.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from bert_jax.runtime import terminal
from bert_jax.scores import calibration

# Of each row, as scikit-learn's sample_weight. None means 1.
Weights: TypeAlias = Float[np.ndarray, "n"] | None


def accuracy(
    labels: Num[np.ndarray, "n"],
    guesses: Num[np.ndarray, "n"],
    weights: Weights = None,
) -> float:
    """Returns the fraction of correct guesses."""
    return float(np.average(labels == guesses, weights=weights))


def binary_f1(
    labels: Int[np.ndarray, "*n"],
    guesses: Int[np.ndarray, "*n"],
    weights: Weights = None,
) -> float:
    """Returns the F1 of class 1, or 0.0 where no label and no guess is 1.

    For several labels at once (rows of 0 and 1), it is the F1 over all labels of all
    examples.
    """
    both = _total((labels == 1) & (guesses == 1), weights)
    whole = _total(labels == 1, weights) + _total(guesses == 1, weights)
    return 2 * both / whole if whole else 0.0


def f1_of_each(
    labels: Int[np.ndarray, "*n"],
    guesses: Int[np.ndarray, "*n"],
    classes: int,
    weights: Weights = None,
) -> Float[np.ndarray, "classes"]:
    """Returns the F1 of each class, or 0.0 where no label and no guess has the class.

    Args:
      labels: Numbers of classes, [n], or for several labels at once, 0 and 1,
        [n, classes].
    """
    correct = labels == guesses
    if labels.ndim > 1:
        shares = 1 if weights is None else weights[:, None]
        right, there, guessed = (
            (x * shares).sum(axis=0) for x in (labels * guesses, labels, guesses)
        )
    else:
        own = None if weights is None else weights[correct]
        right = np.bincount(labels[correct], own, classes)
        there, guessed = (np.bincount(x, weights, classes) for x in (labels, guesses))
    whole = there + guessed
    return np.divide(2 * right, whole, out=np.zeros(classes), where=whole > 0)


def macro_f1(
    labels: Int[np.ndarray, "*n"],
    guesses: Int[np.ndarray, "*n"],
    weights: Weights = None,
) -> float:
    """Returns the mean F1 of the classes, each counted once whatever its frequency.

    As in scikit-learn, classes without any label or guess are left out. With several
    labels at once, no label is left out.
    """
    if labels.ndim > 1:
        return float(f1_of_each(labels, guesses, labels.shape[1], weights).mean())
    there = np.union1d(labels, guesses)
    by_class = f1_of_each(labels, guesses, int(there[-1]) + 1, weights)
    return float(by_class[there].mean())


def matthews(
    labels: Int[np.ndarray, "n"],
    guesses: Int[np.ndarray, "n"],
    weights: Weights = None,
) -> float:
    """Returns the Matthews correlation for any number of classes (Gorodkin 2004: R_K).

    It is 0.0 where all labels or all guesses are one class.
    """
    classes = np.union1d(labels, guesses)
    # Python's numbers: products of counts exceed 64 bits in large sets.
    of_labels = [_total(labels == c, weights) for c in classes]
    of_guesses = [_total(guesses == c, weights) for c in classes]
    count = sum(of_labels)
    right = _total(labels == guesses, weights)
    covariance = right * count - _dot(of_labels, of_guesses)
    spread = (count**2 - _dot(of_labels, of_labels)) * (
        count**2 - _dot(of_guesses, of_guesses)
    )
    return covariance / math.sqrt(spread) if spread > 0 else 0.0


def average_precision(
    labels: Int[np.ndarray, "n"],
    values: Float[np.ndarray, "n"],
    weights: Weights = None,
) -> float:
    """Returns the mean of the precision at each positive row's value, as scikit-learn's
    average_precision_score. Both labels must be there.

    Args:
      labels: 1 for a positive row, else 0.
      values: Numbers that are larger the more a row seems positive.
    """
    right, given = _above_each_value(labels, values, weights)
    return float(np.sum(np.diff(right, prepend=0) * right / given) / right[-1])


def roc_auc(
    labels: Int[np.ndarray, "n"],
    values: Float[np.ndarray, "n"],
    weights: Weights = None,
) -> float:
    """Returns the probability that a positive row has a larger value than another one,
    as scikit-learn's roc_auc_score. `average_precision` has the arguments."""
    right, given = _above_each_value(labels, values, weights)
    right, wrong = np.append(0, right), np.append(0, given - right)
    return float(np.trapezoid(right, wrong) / (right[-1] * wrong[-1]))


def _above_each_value(
    labels: Int[np.ndarray, "n"], values: Float[np.ndarray, "n"], weights: Weights
) -> tuple[Float[np.ndarray, "values"], Float[np.ndarray, "values"]]:
    """Returns the weights of the positive and of all rows with at least each value,
    from the largest value on."""
    order = np.argsort(-values, kind="stable")
    shares = np.ones(len(order)) if weights is None else weights[order]
    ordered = values[order]
    last = np.append(ordered[1:] != ordered[:-1], True)  # of equal values
    return np.cumsum(shares * labels[order])[last], np.cumsum(shares)[last]


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
    labels: Int[np.ndarray, "n classes"],
    guesses: Int[np.ndarray, "n classes"],
    weights: Weights = None,
) -> float:
    """Returns the fraction of examples (rows of 0 and 1) with every label correct."""
    return float(np.average(np.all(labels == guesses, axis=1), weights=weights))


def softmax(
    logits: Float[np.ndarray, "*rows classes"],
) -> Float[np.ndarray, "*rows classes"]:
    """Returns probabilities of classes that exclude each other."""
    # SciPy takes a fifth of a second to import.
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def _correlation(function: Callable, labels: np.ndarray, guesses: np.ndarray) -> float:
    x, y = (np.asarray(series, np.float64) for series in (labels, guesses))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(function(x, y).statistic)


def _total(held: Bool[np.ndarray, "n *classes"], weights: Weights) -> int | float:
    """Returns the number of held places, or the sum of their rows' weights."""
    if weights is None:
        return int(np.sum(held))
    return float(np.sum(held.T * weights))


def _dot(a: list[Any], b: list[Any]) -> Any:
    return sum(x * y for x, y in zip(a, b, strict=True))


def class_tables(
    names: Sequence[str],
    labels: Int[np.ndarray, "rows"],
    guesses: Int[np.ndarray, "rows"],
    probabilities: Float[np.ndarray, "rows classes"],
) -> str:
    """Formats each class's precision, recall and F1, and the confusion matrix.

    Without a guess the precision is 0, as in scikit-learn.

    Args:
      names: Names of the classes.
    """
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (labels, guesses), 1)
    right, guessed, there = (counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1))
    shares = (
        right / np.maximum(guessed, 1),
        right / np.maximum(there, 1),
        2 * right / np.maximum(guessed + there, 1),
    )
    columns = [[f"{x:.4f}" for x in each] for each in shares]
    lines = list(zip(names, *columns, map(str, there), strict=True))
    table = terminal.format_table(
        lines, ("class", "precision", "recall", "f1", "records")
    )
    cells = [(name, *map(str, row)) for name, row in zip(names, counts, strict=True)]
    matrix = terminal.format_table(cells, ("true \\ predicted", *names))
    error = calibration.expected_calibration_error(probabilities, labels)
    return f"{table}\n\n{matrix}\n\nexpected calibration error: {error:.4f}"
