"""Probabilities that mean what they say (Guo et al. 2017), fitted on held-out rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

TEMPERATURES = (0.05, 20.0)  # the least and the largest


def expected_calibration_error(
    shares: Float[np.ndarray, "rows classes"], labels: Int[np.ndarray, "rows"]
) -> float:
    """Returns the mean gap between the confidence and the accuracy of guesses.

    The guesses are in 15 bins of equal width by their confidence, the largest of their
    probabilities. Each bin's gap weighs by its number of guesses.
    """
    confidence = shares.max(axis=1)
    right = shares.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    gaps = np.bincount(bins, confidence - right, minlength=15)
    return float(np.abs(gaps).sum() / len(labels))


def fit_temperature(
    logits: Float[np.ndarray, "rows classes"],
    targets: Int[np.ndarray, "rows"] | Int[np.ndarray, "rows classes"],
) -> float:
    """Returns the T in TEMPERATURES with the least cross entropy of logits / T.

    It is one of these ends where the loss has no minimum between them: without a wrong
    row every smaller T is better.

    Args:
      targets: Classes, or for several labels at once 0 and 1 for each.
    """
    from scipy import optimize, special  # slow, and not needed for answers

    values = logits.astype(np.float64)

    def loss(log_temperature: float) -> float:
        scaled = values / np.exp(log_temperature)
        if targets.ndim == 2:
            return float(np.mean(np.logaddexp(0.0, scaled) - targets * scaled))
        logs = special.log_softmax(scaled, axis=1)
        return -float(logs[np.arange(len(targets)), targets].mean())

    bounds = np.log(TEMPERATURES)
    inside = optimize.minimize_scalar(loss, bounds=bounds)
    at_ends = [loss(end) for end in bounds]
    if min(at_ends) <= inside.fun:
        return TEMPERATURES[int(np.argmin(at_ends))]
    return float(np.exp(inside.x))


def best_threshold(
    logits: Float[np.ndarray, "rows"],
    targets: Int[np.ndarray, "rows"],
    min_precision: float = 0.0,
) -> float:
    """Returns the logit from which on a label is given, for the best F1.

    It lies midway between two rows' logits. Where several are best, it is the one
    nearest to 0. Without any row that has the label it is 0.

    Args:
      min_precision: Least precision, where any threshold has it. Then the recall
        decides. 0 means that F1 does.
    """
    if not targets.any():
        return 0.0
    order = np.argsort(-logits, kind="stable")
    ordered = logits[order].astype(np.float64)
    right, given = np.cumsum(targets[order]), np.arange(1, len(order) + 1)
    value = 2 * right / (given + targets.sum())
    if min_precision:
        precision = right / given
        value = np.where(precision >= min_precision, 1 + right, precision)
    below = np.append(ordered[1:], ordered[-1] - 2.0)
    value[ordered == below] = -1.0  # equal logits are on one side
    cuts = (ordered + below) / 2
    best = cuts[value == value.max()]
    return float(best[np.abs(best).argmin()])


def sigmoid(logits: Float[np.ndarray, " labels"]) -> Float[np.ndarray, " labels"]:
    """Returns probabilities of labels, any number of which may apply."""
    return np.exp(-np.logaddexp(0.0, -logits))


def describe(fitted: Mapping[str, Any]) -> str:
    """Returns what a report says of fitted values: the probability from which each
    label is given, and whether the rows determined the temperature."""
    if thresholds := fitted.get("thresholds"):
        shares = sigmoid(np.array([*thresholds.values()], np.float64))
        pairs = zip(thresholds, shares.tolist(), strict=True)
        given = ", ".join(f"{name} {share:.4g}" for name, share in pairs)
        return f"least probability at which a label is given, fitted on dev: {given}"
    if (heat := fitted.get("temperature")) in TEMPERATURES:
        return (
            f"temperature {heat:g}: is an end of its range, because dev's rows have no "
            "best one; name more rows, or leave out task.calibration"
        )
    return ""
