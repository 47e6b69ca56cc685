"""The page and the picture of experiments.sweeps.compare."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from experiments.lib import plots, report
from experiments.sweeps.compare import DIFFERENCE, cells, note
from experiments.sweeps.compared import Group, difference, labels

_MOST_LINES = 12  # in the plot of curves: more cannot be told apart
_FINAL = "Strokes: runs; dot and line: their mean and its 95% interval."
_CURVES = "By step: means over seeds; the band reaches from the lowest to the highest."


def page(found: Sequence[Group], split: str, score: str) -> str:
    """The file's text: one HTML file, plots inside."""
    title = f"{score} on {split}"
    more = f" The best {_MOST_LINES} of {len(found)}." * (len(found) > _MOST_LINES)
    body = [
        f"<h1>{escape(title)}</h1>",
        _table(found, score),
        report.figure(plots.svg(finals(found, title)), _FINAL),
        report.figure(plots.svg(plots.lines([curves(found, score)], 7.5, 4.5)),
                      _CURVES + more),
    ]  # fmt: skip
    return report.page(title, body)


def png(found: Sequence[Group], split: str, score: str) -> bytes:
    """Both plots, one below the other, for a paper or a message."""
    with plots.drawn(2, 7.5, 3.4, below=True) as (figure, (above, below)):
        plots.draw_intervals(above, _finals(found))
        above.set_xlabel(f"{score} on {split}: runs, mean, 95% interval")
        plots.draw_lines(below, curves(found, score))
    return plots.save(figure)


def _table(found: Sequence[Group], score: str) -> str:
    """The table of the text; what differs in full is in a list below it."""
    names, rows = labels(found), []
    for number, (group, name) in enumerate(zip(found, names, strict=True), 1):
        reach = f" ± {group.reach:.2g}" if math.isfinite(group.reach) else ""
        less = cells(difference(group, found[0])) if number > 1 else ("", "", "")
        row = (number, name, f"{group.mean:.4g}{reach}", len(group.runs), *less)
        rows.append(row)
    header = ("", "runs", "mean", "seeds", *DIFFERENCE)
    table = f"{report.table(rows, header)}<p>{note(score)}</p>"
    if names == [group.name for group in found]:
        return table
    whole = "".join(f"<li>{escape(group.name)}</li>" for group in found)
    return f"{table}<ol>{whole}</ol>"


def finals(found: Sequence[Group], title: str) -> Any:
    """Every run's score, the means and their intervals; named as in the table."""
    return plots.intervals(_finals(found), x=title)[0]


def _finals(found: Sequence[Group]) -> dict[str, Sequence[float]]:
    return dict(zip(_numbered(found), (group.scores for group in found), strict=True))


def _numbered(found: Sequence[Group]) -> list[str]:
    """The groups' names in plots: the table's numbers and short names."""
    return [f"{number}  {name}" for number, name in enumerate(labels(found), 1)]


def curves(found: Sequence[Group], score: str) -> plots.Panel:
    """The score by step, of each of the best groups."""
    lines, bands = {}, {}
    names = _numbered(found)
    for group, name in list(zip(found, names, strict=True))[:_MOST_LINES]:
        by_step: dict[int, list[float]] = {}
        for run in group.runs:
            for line in run.lines:
                if score in line and math.isfinite(value := float(line[score])):
                    by_step.setdefault(int(line["step"]), []).append(value)
        ordered = sorted(by_step.items())
        lines[name] = [(step, sum(each) / len(each), 0.0) for step, each in ordered]
        bands[name] = [(min(each), max(each)) for _, each in ordered]
    return plots.Panel("", "step", score, lines, bands=bands)
