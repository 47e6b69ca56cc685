"""What grid_spread writes: statistics, a verdict, a table, a plot, results.json."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.runtime import terminal
from bert_jax.runtime.storage import write_atomically
from bert_jax.tasks.glue.data import TASKS
from experiments.lib import plots, report
from experiments.lib.verdicts import Claim, Pair, Verdict, estimate, interval, judge

_LARGE = 100_000  # "100k+ labeled training examples"
_TEXT = "Large data sets are far less sensitive to the choice of hyper-parameters"
Point = tuple[int, float, float]  # batch size, learning rate, epochs
Scores = Float[np.ndarray, "points seeds"]  # in percent


class Spread(NamedTuple):
    """How far the scores on one subset lie apart, in points.

    Attributes:
      mean: of all scores.
      ranges, deviations: each seed's, over the grid.
      seeds: standard deviation over seeds at the grid's middle point.
      variance: of the grid's points alone, without the seeds' chance.
      parts: each seed's share in it (jackknife), whose mean it is.
    """

    mean: float
    ranges: Float[np.ndarray, "seeds"]
    deviations: Float[np.ndarray, "seeds"]
    seeds: float
    variance: float
    parts: Float[np.ndarray, "seeds"]


def variance(scores: Scores) -> float:
    """The variance that the points of the grid have of their own.

    The mean covariance, over the grid, of two seeds' scores: what one seed's chance
    does at a point, another's does not repeat. It is the analysis of variance's
    estimate (points by seeds, without repetition), so it may be below 0.
    """
    covariances = np.cov(scores.T)
    count = scores.shape[1]
    return float((covariances.sum() - np.trace(covariances)) / (count * (count - 1)))


def spread(scores: Scores, middle: int) -> Spread:
    """The numbers for one subset.

    Args:
      scores: of at least two points and three seeds.
      middle: the point whose seeds are compared.
    """
    count, whole = scores.shape[1], variance(scores)
    without = [variance(np.delete(scores, seed, axis=1)) for seed in range(count)]
    return Spread(
        float(scores.mean()),
        np.ptp(scores, axis=0),
        scores.std(axis=0, ddof=1),
        float(scores[middle].std(ddof=1)),
        whole,
        count * whole - (count - 1) * np.array(without),
    )


def write(
    options: argparse.Namespace,
    points: Sequence[Point],
    found: Mapping[int, Scores],
    facts: Mapping[str, Any],
) -> str:
    """Writes report.txt, results.json and the plot; returns the report."""
    axes = (options.batch_sizes, options.learning_rates, options.epochs)
    batch, rate, epochs = (sorted(values)[len(values) // 2] for values in axes)
    middle = list(points).index((batch, rate, epochs))
    spreads = {count: spread(each, middle) for count, each in found.items()}
    verdict = judged({count: each.parts for count, each in spreads.items()})
    text = "\n\n".join(
        [
            report.introduction(facts),
            _table(options, points[middle], spreads),
            *([said(verdict, max(found))] if verdict else []),
        ]
    )
    lines: dict[str, plots.Points] = {
        "over the grid": [
            (n, *estimate(s.deviations.tolist())) for n, s in spreads.items()
        ],
        "over the grid, without the seeds' chance": [
            (n, _root(s.variance), 0.0) for n, s in spreads.items()
        ],
        "over seeds at one point": [(n, s.seeds, 0.0) for n, s in spreads.items()],
    }
    panel = plots.Panel(
        "Standard deviation of dev scores",
        *("training examples", "points", lines),
        ticks=sorted(found),
        is_log=True,
    )
    name = options.output / "spread.png"
    write_atomically(name, plots.save(plots.lines([panel])))
    results = {
        **facts,
        "points": [list(point) for point in points],
        "scores": {str(count): each.tolist() for count, each in found.items()},
        "verdict": verdict.word if verdict else None,
        "difference": verdict.parts[0]._asdict() if verdict else None,
    }
    return f"{text}\n\n{report.write(options.output, results, text)}, {name}"


def judged(parts: Mapping[int, Float[np.ndarray, "seeds"]]) -> Verdict | None:
    """Is the grid's own variance larger with the fewest examples than with the most?"""
    fewest, most = min(parts), max(parts)
    if fewest == most:
        return None
    pair = Pair(f"{fewest}", f"{most}", "variance")
    values = {
        (f"{count}", "variance"): dict(enumerate(parts[count].tolist()))
        for count in (fewest, most)
    }
    claim = Claim(_TEXT, "appendix A.3", (pair,))
    return judge(claim, values, ["variance"], len(parts[fewest]))


def said(verdict: Verdict, most: int) -> str:
    """The verdict in words, with its interval."""
    (part,) = verdict.parts
    few, many = (f"{int(name):,}" for name in part.pair[:2])
    ends = f"95% interval {part.low:+.2f} to {part.high:+.2f}"
    lines = [
        f"{verdict.claim.text} (appendix A.3): {verdict.word} at this size",
        f"variance of the grid, {few} examples less {many}: {part.mean:+.2f} points "
        f"squared, {ends if np.isfinite(part.low) else 'without an interval'}"
        + (f" ({part.why})" if part.why else ""),
    ]
    if most < _LARGE:
        lines.append(f"the paper speaks of 100,000 and more examples, not of {many}")
    return "\n".join(lines)


def _table(
    options: argparse.Namespace, middle: Point, spreads: Mapping[int, Spread]
) -> str:
    task, rows = TASKS[options.task], []
    for count, found in spreads.items():
        cells = (
            f"{m:.2f} ± {r:.2f}" if np.isfinite(r) else f"{m:.2f}"
            for m, r in (estimate(each.tolist()) for each in found[1:3])
        )
        low, high = interval(found.parts.tolist())
        own = f"{_root(found.variance):.2f}"
        if np.isfinite(high - low):
            own += f" ({_root(low):.2f} to {_root(high):.2f})"
        rows.append(
            (f"{count:,}", f"{found.mean:.1f}", *cells, own, f"{found.seeds:.2f}")
        )
    batch, rate, epochs = middle
    header = (
        "examples",
        "mean",
        "max - min",
        "deviation",
        "without chance",
        "of seeds",
    )
    return (
        f"{task.title}, dev {task.main_score} in percent: its spread over the grid\n"
        f"{terminal.table(rows, header)}\n"
        "max - min, deviation: of each seed over the grid, mean ± half of the 95% "
        "interval\nwithout chance: the grid's own deviation and its 95% interval\n"
        f"of seeds: their deviation at batch {batch}, rate {rate:g}, {epochs:g} epochs"
    )


def _root(value: float) -> float:
    return float(np.sqrt(np.maximum(0.0, value)))  # nan stays what it is
