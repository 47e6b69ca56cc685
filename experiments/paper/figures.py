"""The figures of a table's report."""

from typing import Any

from experiments.lib import plots
from experiments.lib.report import Figure
from experiments.lib.verdicts import Verdict
from experiments.paper.results import Results


def of_scores(found: Results) -> list[Figure]:
    """What those below the scores show: lines along the table's axis, each column."""
    seeds = "Each stroke is a seed, the dot their mean, the line its 95% interval"
    seeds += "; dotted: the majority class." if found.baselines else "."
    shown = []
    if axis := found.table.axis:
        said = f"Along {axis}; bars are 95% intervals."
        shown.append(Figure(lambda: plots.svg(lines(found)), said))
    if any(cell.seeds for cell in found.cells.values()):
        shown.append(Figure(lambda: "".join(map(plots.svg, scores(found))), seeds))
    return shown


def of_claim(found: Results, verdict: Verdict) -> list[Figure]:
    """A claim's comparisons, where some were made."""
    said = "Strokes: seeds; dot and line: mean and 95% interval; white: the paper."
    if not any(part.differences for part in verdict.parts):
        return []
    return [Figure(lambda: plots.svg(differences(found, verdict)), said)]


def scores(found: Results) -> list[Any]:
    """For each column: every seed, the mean and its 95% interval."""
    figures = []
    for column in found.columns:
        seeds = {
            s.name: [*found.cells[s.name, column.key].seeds.values()]
            for s in found.table.systems
        }
        if any(seeds.values()):
            figure, panel = plots.intervals(seeds, title=column.title)
            if column.key in found.baselines:
                majority = found.baselines[column.key]
                panel.axvline(majority, color="black", linewidth=0.8, linestyle=":")
            figures.append(figure)
    return figures


def differences(found: Results, verdict: Verdict) -> Any:
    """A claim's comparisons: differences by seed, their interval, the paper's."""
    parts = [part for part in verdict.parts if part.differences]
    titles = {column.key: column.title for column in found.columns}
    values = {
        f"{titles[part.pair.column]}\n{part.pair.first} less {part.pair.second}": (
            part.differences
        )
        for part in parts
    }
    figure, panel = plots.intervals(values, x="points")
    for row, part in enumerate(parts):
        first, second = (
            found.cells[system, part.pair.column].paper for system in part.pair[:2]
        )
        if first is not None and second is not None:
            white = {"color": "black", "markerfacecolor": "white", "markersize": 6}
            panel.plot([first - second], [row], "D", **white)
    panel.axvline(0, color="black", linewidth=0.8)
    for edge in (-verdict.claim.margin, verdict.claim.margin):
        if edge:
            panel.axvline(edge, color="black", linewidth=0.8, linestyle=":")
    return figure


def lines(found: Results) -> Any:
    """Scores along the table's axis, a line of each system."""
    systems = found.table.systems
    ticks = sorted({point.at for point in systems})
    panels = []
    for column in found.columns:
        points: dict[str, list[tuple[float, float, float]]] = {}
        for system in systems:
            cell = found.cells[system.name, column.key]
            if cell.seeds:
                point = (system.at, *cell.estimate)
                points.setdefault(system.line, []).append(point)
        x = found.table.axis
        panels.append(plots.Panel("", x, column.title, points, ticks=ticks))
    return plots.lines(panels)
