"""What experiments.sweeps.compare says of runs: the table, the page and the picture."""

import math
from collections.abc import Sequence

from experiments.lib import plots
from experiments.lib.report import Figure, Section, Table
from experiments.sweeps.compared import (
    Difference,
    Group,
    difference,
    labels,
    lower_is_better,
)

DIFFERENCE = ("less row 1", "95% interval", "pairs")
_MOST_LINES = 12  # in the plot of curves: more cannot be told apart


def sections(found: Sequence[Group], split: str, score: str) -> list[Section]:
    """The table, how to read it, the whole of what it shortens, and two plots."""
    below = [note(score)] if len(found) > 1 else []
    if labels(found) != [group.name for group in found]:
        below += [f"{number}: {group.name}" for number, group in enumerate(found, 1)]
    title, curves = f"{score} on {split}", f"By step: {_CURVES}"
    if len(found) > _MOST_LINES:
        curves += f" The best {_MOST_LINES} of {len(found)}."
    parts: list[str | Table | Figure] = [
        _table(found, f"{split} {score}"),
        *(["\n".join(below)] if below else []),
        Figure(lambda: plots.svg(plots.intervals(_finals(found), title)[0]), _FINAL),
        Figure(lambda: plots.svg(plots.lines([lines(found, score)], 7.5, 4.5)), curves),
    ]
    return [Section("", parts)]


_FINAL = "Strokes: runs; dot and line: their mean and its 95% interval."
_CURVES = "means over seeds; the band reaches from the lowest to the highest."


def png(found: Sequence[Group], split: str, score: str) -> bytes:
    """Both plots, one below the other, for a paper or a message."""
    with plots.drawn(2, 7.5, 3.4, below=True) as (figure, (above, below)):
        plots.draw_intervals(above, _finals(found))
        above.set_xlabel(f"{score} on {split}: runs, mean, 95% interval")
        plots.draw_lines(below, lines(found, score))
    return plots.save(figure)


def _table(found: Sequence[Group], title: str) -> Table:
    rows = []
    for number, (group, name) in enumerate(zip(found, labels(found), strict=True), 1):
        reach = f"± {group.reach:.2g}" if math.isfinite(group.reach) else ""
        row = [str(number), name, f"{group.mean:.4g}", reach, str(len(group.runs))]
        if len(found) > 1:
            row += cells(difference(group, found[0])) if number > 1 else ("", "", "")
        rows.append(row)
    header = ("", "runs", title, "95%", "seeds")
    return Table(rows, header + DIFFERENCE if len(found) > 1 else header)


def note(score: str) -> str:
    """How to read the table."""
    better = "lower" if lower_is_better(score) else "higher"
    return (
        f"the best first ({better} is better); less row 1: how much they differ from "
        "it, over the seeds that both have (pairs), else over all"
    )


def cells(found: Difference) -> tuple[str, str, str]:
    """The mean, the interval and the number of pairs."""
    is_known = math.isfinite(found.low)
    ends = f"{found.low:+.2g} to {found.high:+.2g}" if is_known else ""
    return f"{found.mean:+.3g}", ends, str(found.pairs or "")


def _finals(found: Sequence[Group]) -> dict[str, Sequence[float]]:
    """Every run's score, by the groups' names as in the table."""
    return dict(zip(_numbered(found), (group.scores for group in found), strict=True))


def _numbered(found: Sequence[Group]) -> list[str]:
    """The groups' names in plots: the table's numbers and short names."""
    return [f"{number}  {name}" for number, name in enumerate(labels(found), 1)]


def lines(found: Sequence[Group], score: str) -> plots.Panel:
    """The score by step, of each of the best groups."""
    means, bands = {}, {}
    names = _numbered(found)
    for group, name in list(zip(found, names, strict=True))[:_MOST_LINES]:
        by_step: dict[int, list[float]] = {}
        for run in group.runs:
            for line in run.lines:
                if score in line and math.isfinite(value := float(line[score])):
                    by_step.setdefault(int(line["step"]), []).append(value)
        ordered = sorted(by_step.items())
        means[name] = [(step, sum(each) / len(each), 0.0) for step, each in ordered]
        bands[name] = [(min(each), max(each)) for _, each in ordered]
    return plots.Panel("", "step", score, means, bands=bands)
