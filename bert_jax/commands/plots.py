"""Plots whose lines differ by shape, so that gray is enough."""

import contextlib
import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.commands.intervals import estimate

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "axes.titlesize": 10,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.fontsize": 9,
    "legend.frameon": False,
    "svg.hashsalt": "bert",
    "pdf.fonttype": 42,  # TrueType, as publishers ask for
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# The markers and colors of a panel's lines, in turn.
_MARKERS = (
    *(("o", "black"), ("s", "0.55"), ("^", "white"), ("D", "0.8")),
    *(("v", "black"), ("P", "0.55"), ("X", "white")),
)
_STROKES = ("-", "--", "-.", ":")
# Points of a line: x, mean, and half of its interval (0 means none).
Points = Sequence[tuple[float, float, float]]


class Panel(NamedTuple):
    """Lines over one axis.

    Attributes:
      lines: Lines by name.
      levels: Dotted horizontal lines, by name.
      ticks: Ticks of the x axis. Empty means matplotlib's.
      is_log: Whether the x axis is logarithmic.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    levels: Mapping[str, float] = {}
    ticks: Sequence[float] = ()
    is_log: bool = False


@contextlib.contextmanager
def drawn(panels: int, width: float, height: float) -> Iterator[tuple[Any, list[Any]]]:
    """Opens a figure and its panels, side by side.

    Args:
      width, height: Size of a panel, in inches.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(0.4 + width * panels, height), layout="constrained")
        yield figure, list(figure.subplots(1, panels, squeeze=False).flat)


def save(figure: Any, kind: str = "png", dpi: float = 150) -> bytes:
    """Returns the file of a figure: png, pdf or svg."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(file, format=kind, dpi=dpi)
    return file.getvalue()


def lines(panels: Sequence[Panel]) -> Any:
    """Draws lines with error bars, panels side by side, the legend below each."""
    with drawn(len(panels), width=4.6, height=3.6) as (figure, axes):
        for one, panel in zip(axes, panels, strict=True):
            _draw_lines(one, panel)
    return figure


def dots(rows: Mapping[str, Sequence[float]], x: str) -> Any:
    """Draws a row for each name: every value, and the mean with its 95% interval."""
    names = [textwrap.fill(name, 44) for name in rows]
    lines = sum(name.count("\n") + 1 for name in names)
    with drawn(1, width=6.4, height=0.8 + 0.26 * lines) as (figure, (axes,)):
        for y, values in enumerate(rows.values()):
            mean, reach = estimate(values)
            below = [y + 0.25] * len(values)
            axes.plot(values, below, "o", color="0.55", markersize=3)
            bar = reach if math.isfinite(reach) else None
            style = {"color": "black", "markersize": 5, "capsize": 3}
            axes.errorbar(mean, y, xerr=bar, fmt="D", **style)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel(f"{x} (each seed, the mean and its 95% interval)")
        axes.grid(axis="x")
    return figure


def _draw_lines(axes: Any, panel: Panel) -> None:
    for number, (name, points) in enumerate(panel.lines.items()):
        marker, fill = _MARKERS[number % len(_MARKERS)]
        aside = 1 + 0.03 * number * panel.is_log  # bars do not hide each other
        xs, means, reach = np.array(points, float).reshape(-1, 3).T
        axes.errorbar(
            *(xs * aside, means),
            yerr=np.where(np.isfinite(reach), reach, 0) if reach.any() else None,
            label=name,
            marker=marker,
            color="black" if fill == "white" else fill,
            markerfacecolor=fill,
            linestyle=_STROKES[number // 2 % len(_STROKES)],
            linewidth=1.2,
            markersize=5,
            capsize=3,
        )
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
