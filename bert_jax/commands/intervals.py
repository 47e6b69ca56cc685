"""Student's t interval of a mean, over seeds."""

import math
import statistics
from collections.abc import Sequence

from scipy import stats

LEVEL = 0.95


def number(value: float) -> float | None:
    """Returns a number as JSON has it: None where it is not finite."""
    return value if math.isfinite(value) else None


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Returns Student's t interval of the mean.

    It has no bounds for fewer than two values, where one is not finite, or where all
    are equal but for rounding: their spread does not measure chance.
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return -math.inf, math.inf
    if max(values) - min(values) < 1e-6:
        return -math.inf, math.inf
    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + level) / 2, len(values) - 1)) * error
    mean = statistics.fmean(values)
    return mean - reach, mean + reach


def estimate(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean, and half of its 95% interval: infinite without bounds."""
    low, high = interval(values)
    return statistics.fmean(values) if values else math.nan, (high - low) / 2
