"""Plots as SVG, PNG or PDF; told apart by shape, so that grey is enough."""

import contextlib
import io
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.runtime import terminal
from experiments.lib.verdicts import interval

STYLE: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 10,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.fontsize": 9,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "bert",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_DPI = 150
_INCH_A_ROW = 0.34
# Of the lines of a panel, in turn: the marks and their colours.
_MARKS = (
    *(("o", "black"), ("s", "0.55"), ("^", "white"), ("D", "0.8")),
    *(("v", "black"), ("P", "0.55"), ("X", "white")),
)
_STROKES = ("-", "--", "-.", ":")
# Of a line: x, mean, and half of its interval (0: none).
Points = Sequence[tuple[float, float, float]]


class Panel(NamedTuple):
    """Lines over one axis.

    Attributes:
      lines: by name.
      levels: dotted horizontal lines, by name.
      bands: the lowest and highest value at each of a line's points, by its name.
      ticks: of the x axis; empty: as they fall.
      is_log: the x axis is logarithmic.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    levels: Mapping[str, float] = {}
    bands: Mapping[str, Sequence[tuple[float, float]]] = {}
    ticks: Sequence[float] = ()
    is_log: bool = False


@contextlib.contextmanager
def drawn(
    panels: int, width: float, height: float, *, below: bool = False
) -> Iterator[tuple[Any, list[Any]]]:
    """A figure and its panels, side by side.

    Args:
      width, height: of a panel, in inches.
      below: one below the other.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        shape, size = (1, panels), (0.4 + width * panels, height)
        if below:
            shape, size = shape[::-1], (0.4 + width, height * panels)
        figure = Figure(figsize=size, layout="constrained")
        yield figure, list(figure.subplots(*shape, squeeze=False).flat)


def save(figure: Any, kind: str = "png", dpi: float = _DPI) -> bytes:
    """The file of a figure; says so if its font lacks characters.

    Args:
      kind: png, pdf or svg.
    """
    import matplotlib

    file = io.BytesIO()
    # Names addresses otherwise, which a report needs none of.
    names = ("Creator", "Date", "Format", "Type") if kind == "svg" else ()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with matplotlib.rc_context(STYLE):
            metadata = dict.fromkeys(names)
            figure.savefig(file, format=kind, dpi=dpi, metadata=metadata)
    for told in found:
        if "Glyph" not in str(told.message):
            warnings.warn_explicit(told.message, told.category, __file__, 0)
    if any("Glyph" in str(told.message) for told in found):
        terminal.say("the plot's font lacks characters of some names")
    return file.getvalue()


def svg(figure: Any) -> str:
    """A figure as an SVG element."""
    text = save(figure, "svg").decode()
    return text[text.index("<svg") :]


def lines(panels: Sequence[Panel], width: float = 4.6, height: float = 3.6) -> Any:
    """Lines with error bars, panel beside panel, the legend below each."""
    with drawn(len(panels), width, height) as (figure, axes):
        for one, panel in zip(axes, panels, strict=True):
            draw_lines(one, panel)
    return figure


def draw_lines(axes: Any, panel: Panel) -> None:
    """One panel of `lines`; to be called within `drawn`."""
    for number, (name, points) in enumerate(panel.lines.items()):
        mark, fill = _MARKS[number % len(_MARKS)]
        color = "black" if fill == "white" else fill
        aside = 1 + 0.03 * number * panel.is_log  # bars do not hide each other
        xs, means, reach = np.array(points, float).reshape(-1, 3).T
        axes.errorbar(
            *(xs * aside, means),
            yerr=np.where(np.isfinite(reach), reach, 0) if reach.any() else None,
            label=name,
            marker=mark,
            color=color,
            markerfacecolor=fill,
            linestyle=_STROKES[number // 2 % len(_STROKES)],
            linewidth=1.2,
            markersize=5,
            capsize=3,
        )
        if band := panel.bands.get(name):
            axes.fill_between(xs, *np.array(band).T, color=color, alpha=0.15)
    for number, (name, level) in enumerate(panel.levels.items()):
        style = (":", (0, (1, 3)))[number % 2]
        axes.axhline(level, color="0.4", linestyle=style, label=name)
    if panel.is_log:
        axes.set_xscale("log")
        axes.minorticks_off()
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:,g}" for tick in panel.ticks])
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    axes.grid(axis="y")
    axes.legend(bbox_to_anchor=(0, -0.18), loc="upper left")


def intervals(
    values: Mapping[str, Sequence[float]], x: str = "", title: str = ""
) -> tuple[Any, Any]:
    """A row for each name: a stroke for each value, their mean and its 95% interval.

    Returns:
      The figure and its panel.
    """
    height = 0.9 + _INCH_A_ROW * sum(1 + name.count("\n") for name in values)
    with drawn(1, 5.0, height) as (figure, (axes,)):
        draw_intervals(axes, values)
        axes.set(title=title, xlabel=x)
    return figure, axes


def draw_intervals(axes: Any, values: Mapping[str, Sequence[float]]) -> None:
    """The rows of `intervals`; to be called within `drawn`."""
    for row, each in enumerate(values.values()):
        known = [value for value in each if math.isfinite(value)]
        if not known:
            place = axes.get_yaxis_transform()
            axes.text(0.5, row, "no scores", transform=place, va="center", color="0.5")
            continue
        axes.plot(known, [row] * len(known), "|", color="0.5", markersize=9)
        ends = interval(known)
        if math.isfinite(ends[0]):
            axes.plot(ends, [row, row], color="black", linewidth=1.4)
        axes.plot([sum(known) / len(known)], [row], "o", color="black", markersize=5)
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.grid(axis="x")


def scatter(
    panels: Mapping[str, Float[np.ndarray, "rows 2"]], labels: Sequence[str]
) -> Any:
    """Each row a mark in a plane, by its label; no scales."""
    names = list(dict.fromkeys(labels))
    with drawn(len(panels), 3.0, 3.3) as (figure, axes):
        for panel, (title, points) in zip(axes, panels.items(), strict=True):
            for name, (mark, fill) in zip(names, itertools.cycle(_MARKS), strict=False):
                panel.plot(
                    *points[[label == name for label in labels]].T,
                    mark,
                    color="black",
                    markerfacecolor=fill,
                    markersize=6,
                    label=name.replace("$", r"\$"),  # which would begin a formula
                )
            panel.set(title=title, xticks=[], yticks=[])
        handles, texts = axes[0].get_legend_handles_labels()
        figure.legend(handles, texts, loc="outside lower center", ncols=len(names))
    return figure
