"""What the figures by number of training examples share: subsets, runs, plots."""

import io
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bert_jax.errors import UserError
from bert_jax.runtime import terminal
from bert_jax.runtime.storage import write_atomically
from experiments.lib import execution
from experiments.lib.runs import Run
from experiments.speed import measuring

# Told apart by mark, line and grey, so that grey is enough.
_LINES: Sequence[Mapping[str, Any]] = (
    {"marker": "o", "color": "black", "linestyle": "-"},
    {"marker": "s", "color": "0.55", "linestyle": "-"},
    {"marker": "^", "color": "black", "linestyle": "--", "markerfacecolor": "white"},
    {"marker": "D", "color": "0.55", "linestyle": ":", "markerfacecolor": "white"},
)
# Of a line: x, mean, and half of its interval (0: none).
Points = Sequence[tuple[float, float, float]]


def nested(labels: Sequence[Hashable], seed: int) -> Int[np.ndarray, "examples"]:
    """An order of the examples whose every beginning is a stratified random subset.

    Each class is shuffled and spread evenly over the order, so the first n examples
    have of each class its share of n, rounded up or down; a smaller subset is part of
    a larger one.
    """
    rng = np.random.default_rng(seed)
    place = np.empty(len(labels))
    codes = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    classes = np.array([codes[label] for label in labels])
    for code in range(len(codes)):
        own = rng.permutation(np.flatnonzero(classes == code))
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return np.argsort(place, kind="stable")


def sizes(text: str, available: int) -> list[int]:
    """The numbers of examples that --examples asks for, ascending; `all` is one.

    Raises:
      UserError: one is not a number from 2 to `available`.
    """
    found = set()
    for part in filter(None, text.split(",")):
        number = available if part == "all" else int(part) if part.isdecimal() else 0
        if not 2 <= number <= available:
            raise UserError(
                f"--examples={text}: {part!r} is not a number from 2 to the "
                f"{available:,} training examples that there are, nor 'all'"
            )
        found.add(number)
    if not found:
        raise UserError("--examples: at least one number is required")
    return sorted(found)


def finish(runs: Sequence[Run], output: Path, report: Callable[[], str]) -> int:
    """Runs what is left, then reports; gives the exit status.

    Args:
      report: of runs that have all ended; returns what to print.
    """
    with execution.alone(output) as lock:
        errors: dict[Path, str] = {}
        status = execution.run_all(runs, errors, lock)
        if status:
            terminal.say("stopped; the same command goes on there")
            return status
        for folder, error in errors.items():
            raise UserError(
                f"{len(errors)} of {len(runs)} runs failed, the first {folder}: "
                f"{error}; the same command tries them again"
            )
        print(report())
    return 0


def between(low: float, high: float, digits: int) -> str:
    """An interval in words; empty where it has no bounds."""
    if not math.isfinite(high - low):
        return ""
    return f"{low:+.{digits}f} to {high:+.{digits}f}"


def facts(module: str, argv: Sequence[str]) -> dict[str, Any]:
    """The command, the date and the hardware."""
    return measuring.facts(module, argv, ("jax", "flax", "numpy", "scipy"))


def write(output: Path, results: Mapping[str, Any], text: str) -> None:
    """Writes results.json and report.txt."""
    write_atomically(output / "results.json", json.dumps(results, indent=1) + "\n")
    write_atomically(output / "report.txt", text + "\n")


def draw(
    path: Path,
    panels: Sequence[tuple[str, str, Mapping[str, Points]]],
    *,
    x: str,
    examples: bool,
) -> None:
    """Writes a plot as PNG, one panel beside the other.

    Args:
      panels: title, the y axis's label, and the lines by name.
      x: the x axis's label.
      examples: x counts examples: ticks at these numbers, on a logarithmic axis.
    """
    from experiments.lib import plots  # needs matplotlib

    with plots.matplotlib.rc_context(plots.STYLE):
        size = (0.4 + 4.2 * len(panels), 3.6)
        figure = plots.Figure(figsize=size, layout="constrained")
        for panel, (title, y, lines) in zip(
            figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True
        ):
            for number, (name, points) in enumerate(lines.items()):
                aside = 1 + 0.03 * number * examples  # bars do not hide each other
                xs, means, reach = np.array(points, float).reshape(-1, 3).T
                panel.errorbar(
                    *(xs * aside, means),
                    **_LINES[number % len(_LINES)],
                    yerr=reach if reach.any() else None,
                    label=name,
                    capsize=3,
                    markersize=5,
                )
            if examples:
                panel.set_xscale("log")
                ticks = sorted({point[0] for some in lines.values() for point in some})
                panel.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
                panel.minorticks_off()
            panel.set(title=title, xlabel=x, ylabel=y)
            panel.grid(axis="y", color="0.9")
            panel.set_axisbelow(True)
        handles, names = panel.get_legend_handles_labels()
        figure.legend(
            *(handles, names),
            loc="outside lower center",
            ncols=min(2 * len(panels), len(names)),
            frameon=False,
        )
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150)
    write_atomically(path, file.getvalue())
