"""The page of experiments.sweeps.compare: one HTML file, plots inside."""

import io
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from experiments.lib.plots import MARKS, STYLE, svg
from experiments.sweeps.compare import LESS, cells
from experiments.sweeps.compared import Group, difference, labels

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; color: #111; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1rem .25rem 0; text-align: left;
  border-bottom: 1px solid #ddd; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
"""
_MOST_LINES = 12  # in the plot of curves: more cannot be told apart


def page(found: Sequence[Group], split: str, score: str) -> str:
    """The file's text."""
    title = f"{score} on {split}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _table(found),
        "<h2>Final scores</h2>",
        svg(finals(found, title)),
        "<p>Each stroke is a run, the dot their mean, the line its 95% interval.</p>",
        "<h2>By step</h2>",
        svg(curves(found[:_MOST_LINES], title, score)),
        "<p>Means over seeds; the band reaches from the lowest to the highest.</p>",
    ]
    if len(found) > _MOST_LINES:
        body.append(f"<p>The best {_MOST_LINES} of {len(found)}.</p>")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def png(found: Sequence[Group], split: str, score: str) -> bytes:
    """The plot of scores by step alone, for a paper or a message."""
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure = curves(found[:_MOST_LINES], f"{score} on {split}", score)
        figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


def _table(found: Sequence[Group]) -> str:
    """The table of the text; what differs in full is in a list below it."""
    names, rows = labels(found), []
    for number, (group, name) in enumerate(zip(found, names, strict=True), 1):
        row = [str(number), name, f"{group.mean:.4g}{_reach(group)}"]
        less = cells(difference(group, found[0])) if number > 1 else ("", "", "")
        row += [str(len(group.runs)), *less]
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in row))
    heads = ("", "runs", "mean", "seeds", "less 1", "95%", "pairs")
    header = "".join(f"<th>{head}</th>" for head in heads)
    lines = "".join(f"<tr>{row}</tr>" for row in (header, *rows))
    table = f'<div class="scroll"><table>{lines}</table></div><p>{LESS}</p>'
    if names == [group.name for group in found]:
        return table
    whole = "".join(f"<li>{escape(group.name)}</li>" for group in found)
    return f"{table}<ol>{whole}</ol>"


def _numbered(found: Sequence[Group]) -> list[str]:
    """The groups' names in plots: the table's numbers and short names."""
    return [f"{number}  {name}" for number, name in enumerate(labels(found), 1)]


def _reach(group: Group) -> str:
    return f" ± {group.reach:.2g}" if math.isfinite(group.reach) else ""


def finals(found: Sequence[Group], title: str) -> Figure:
    """Every run's score, the means and their intervals; named as in the table."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.9 + 0.34 * len(found)), layout="constrained")
        panel = figure.subplots()
        for row, group in enumerate(found):
            panel.plot(group.scores, [row] * len(group.scores), "|", color="0.5")
            if math.isfinite(group.reach):
                ends = [group.mean - group.reach, group.mean + group.reach]
                panel.plot(ends, [row, row], color="black", linewidth=1.4)
            panel.plot([group.mean], [row], "o", color="black", markersize=5)
        panel.set_yticks(range(len(found)), _numbered(found))
        panel.set_ylim(len(found) - 0.5, -0.5)
        panel.set_xlabel(title)
        panel.grid(axis="x", color="0.9")
    return figure


def curves(found: Sequence[Group], title: str, score: str) -> Figure:
    """The score by step, of each group."""
    names = _numbered(found)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 4 + 0.2 * len(found)), layout="constrained")
        panel = figure.subplots()
        for number, group in enumerate(found):
            steps, values = _by_step(group, score)
            color = str(0.6 * number / max(1, len(found) - 1))
            mark = MARKS[number % len(MARKS)]
            means = [sum(each) / len(each) for each in values]
            panel.plot(steps, means, color=color, marker=mark, label=names[number])
            lows, highs = map(min, values), map(max, values)
            panel.fill_between(steps, [*lows], [*highs], color=color, alpha=0.15)
        panel.set_xlabel("step")
        panel.set_ylabel(title)
        figure.legend(frameon=False, loc="outside lower left")
    return figure


def _by_step(group: Group, score: str) -> tuple[list[int], list[list[float]]]:
    found: dict[int, list[float]] = {}
    for run in group.runs:
        for line in run.lines:
            if score in line and math.isfinite(value := float(line[score])):
                found.setdefault(int(line["step"]), []).append(value)
    ordered: Mapping[int, Any] = dict(sorted(found.items()))
    return list(ordered), list(ordered.values())
