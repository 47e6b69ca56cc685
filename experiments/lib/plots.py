"""The report's plots, as inline SVG; told apart by shape, so that grey is enough."""

import io
import math
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure

from experiments.lib.verdicts import Verdict, interval
from experiments.paper.results import Results
from experiments.paper.systems import Column

STYLE: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "svg.fonttype": "path",
    "svg.hashsalt": "bert",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.bbox": "tight",
}
# Which would name addresses: the report needs none.
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
MARKS = ("o", "s", "^", "D", "v", "P", "X")
_GREYS = ("black", "0.55", "0.3")
_INCH_A_ROW = 0.34


def svg(figure: Figure) -> str:
    """A figure as an SVG element."""
    file = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata=_NO_METADATA)
    text = file.getvalue()
    return text[text.index("<svg") :]


def scores(found: Results) -> list[Figure]:
    """For each column: every seed, the mean and its 95% interval."""
    return [
        _column(found, column)
        for column in found.columns
        if any(found.cells[s.name, column.key].seeds for s in found.table.systems)
    ]


def _column(found: Results, column: Column) -> Figure:
    systems = found.table.systems
    with matplotlib.rc_context(STYLE):
        size = (4.6, 0.9 + _INCH_A_ROW * len(systems))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        panel.set_title(column.title, fontsize=10)
        for row, system in enumerate(systems):
            _values(panel, row, found.cells[system.name, column.key].seeds)
        if column.key in found.baselines:
            majority = found.baselines[column.key]
            panel.axvline(majority, color="black", linewidth=0.8, linestyle=":")
        panel.set_yticks(range(len(systems)), [system.name for system in systems])
        panel.set_ylim(len(systems) - 0.5, -0.5)
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
    return figure


def _values(panel: Any, row: int, seeds: Any) -> None:
    values = [value for value in seeds.values() if math.isfinite(value)]
    if not values:
        panel.text(0.5, row, "no scores", transform=panel.get_yaxis_transform(),
                   ha="center", va="center", color="0.5")  # fmt: skip
        return
    panel.plot(values, [row] * len(values), "|", color="0.5", markersize=9)
    mean = sum(values) / len(values)
    if len(values) > 1:
        low, high = interval(values)
        panel.plot([low, high], [row, row], color="black", linewidth=1.4)
    panel.plot([mean], [row], "o", color="black", markersize=5)


def differences(found: Results, verdict: Verdict) -> Figure | None:
    """A claim's comparisons: differences by seed, their interval, the paper's."""
    parts = [part for part in verdict.parts if part.differences]
    if not parts:
        return None
    with matplotlib.rc_context(STYLE):
        size = (6.2, 0.9 + 1.5 * _INCH_A_ROW * len(parts))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        for row, part in enumerate(parts):
            _values(panel, row, dict(enumerate(part.differences)))
            cells = [
                found.cells[system, part.pair.column].paper
                for system in (part.pair.first, part.pair.second)
            ]
            if cells[0] is not None and cells[1] is not None:
                panel.plot(
                    [cells[0] - cells[1]],
                    [row],
                    marker="D",
                    color="black",
                    markerfacecolor="white",
                    markersize=6,
                )
        titles = {column.key: column.title for column in found.columns}
        labels = [
            f"{titles[part.pair.column]}\n{part.pair.first} less {part.pair.second}"
            for part in parts
        ]
        panel.set_yticks(range(len(parts)), labels)
        panel.set_ylim(len(parts) - 0.5, -0.5)
        panel.axvline(0, color="black", linewidth=0.8)
        for edge in (-verdict.claim.margin, verdict.claim.margin):
            if edge:
                panel.axvline(edge, color="black", linewidth=0.8, linestyle=":")
        panel.set_xlabel("points")
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
    return figure


def lines(found: Results) -> Figure | None:
    """Scores along the table's axis, a line of each system."""
    if not found.table.axis:
        return None
    points = found.table.systems
    labels = list(dict.fromkeys(point.line for point in points))
    columns = found.columns
    with matplotlib.rc_context(STYLE):
        size = (5.2 * len(columns), 3.2)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(columns), squeeze=False)
        for panel, column in zip(panels.flat, columns, strict=True):
            for number, label in enumerate(labels):
                mark, grey = MARKS[number % len(MARKS)], _GREYS[number % len(_GREYS)]
                _line(panel, found, column.key, label, mark, grey)
            panel.set_xlabel(found.table.axis)
            panel.set_ylabel(column.title)
            panel.set_xticks(sorted({point.at for point in points}))
            panel.legend(frameon=False, bbox_to_anchor=(1, 1), loc="upper left")
            panel.grid(axis="y", color="0.9")
    return figure


def _line(
    panel: Any, found: Results, key: str, label: str, mark: str, grey: str
) -> None:
    points: list[tuple[float, float, float]] = []
    for system in found.table.systems:
        cell = found.cells[system.name, key]
        if system.line == label and cell.seeds and math.isfinite(cell.mean):
            points.append((system.at, cell.mean, cell.reach or 0.0))
    if points:
        x, y, reach = zip(*points, strict=True)
        panel.errorbar(
            x, y, yerr=reach, label=label, marker=mark, color=grey, capsize=3
        )


def every(found: Results) -> list[tuple[str, list[Figure]]]:
    """The plots above the claims, each group with what it shows."""
    seeds = "Each stroke is a seed, the dot their mean, the line its 95% interval"
    seeds += "; dotted: the majority class." if found.baselines else "."
    plots = [(seeds, scores(found))]
    if (figure := lines(found)) is not None:
        shown = f"Along {found.table.axis}; bars are 95% intervals."
        plots.insert(0, (shown, [figure]))
    return [(said, figures) for said, figures in plots if figures]
