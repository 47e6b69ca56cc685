"""The report of a table: its sections, their words and plots."""

import functools
import math
from typing import Any

from experiments.lib import plots, published, verdicts
from experiments.lib.report import Figure, Section, Table
from experiments.lib.runner import duration
from experiments.paper.results import Cell, Results
from experiments.paper.systems import Column


def sections(found: Results) -> list[Section]:
    """The report; its figures need matplotlib."""
    table = found.table
    title = f"{table.published.title}, size {found.size}"
    begin = [f"{title} ({table.name}: {table.published.source})"]
    begin += [f"{verdict.word}: {verdict.claim.text}" for verdict in found.verdicts]
    about = "\n".join(f"{name}: {said}" for name, said in found.about.items())
    parts = [
        Section("", ["\n".join(begin)]),
        Section("Runs that failed", _failures(found)),
        Section("Scores", [Table(*score_rows(found), SCORES), *_score_figures(found)]),
        Section("As published", published_rows(found)),
        Section("Pre-training, on held-out text", loss_rows(found)),
        Section("What pre-training took", cost_rows(found)),
        Section("Claims of the paper", _claims(found)),
        Section("How to read it", [*filter(None, (HOW_TO_READ, table.note))]),
        Section("Circumstances", [about]),
    ]
    return [part for part in parts if part.parts]


def _failures(found: Results) -> list[str]:
    failed = [run for run in found.runs if run["error"]]
    lines = [f"{run['folder']}: {run['error']}" for run in failed]
    return ["\n".join([f"{len(failed)} runs failed:", *lines])] if failed else []


def _claims(found: Results) -> list[str | Figure]:
    """The verdicts, each with its comparisons."""
    if not found.verdicts:
        return ["This table tests no claim at this size."]
    parts: list[str | Figure] = []
    for number, verdict in enumerate(found.verdicts, 1):
        parts.append(verdict.text)
        if any(part.differences for part in verdict.parts):
            draw = functools.partial(difference_plot, found, verdict)
            parts.append(Figure(f"claim_{number}", draw, COMPARISONS))
    return parts


def _score_figures(found: Results) -> list[Figure]:
    """Lines along the table's axis, and each column's scores."""
    seeds = "Each stroke is a seed, the dot their mean, the line its 95% interval"
    seeds += "; dotted: the majority class." if found.baselines else "."
    shown = []
    if axis := found.table.axis:
        said = f"Along {axis}; bars are 95% intervals."
        shown.append(Figure("lines", lambda: line_plots(found), said))
    for column in found.columns:
        if any(found.cells[s.name, column.key].seeds for s in found.table.systems):
            draw = functools.partial(score_plot, found, column)
            shown.append(Figure(f"scores_{column.key.replace('/', '_')}", draw, seeds))
    return shown


SCORES = (
    "mean and 95% interval over seeds, on dev, in points; in brackets the paper's "
    "figure, of other models and more text"
)
COMPARISONS = "Strokes: seeds; dot and line: mean and 95% interval; white: the paper."
COSTS = (
    "Every system reads the same number of words of the same text; a word is what all "
    "three cut text into before they look inside it. Positions are those computed, "
    "padding and special tokens too; parameters those that fine-tuning takes over; "
    "FLOPs by formula; time that of the run's last start, evaluation and compilation "
    "too."
)
HOW_TO_READ = (
    "A claim's comparisons subtract two systems' scores seed by seed; the interval is "
    "Student's t at 95%. A contradiction needs a wider one than is shown, at 1 - 0.05 "
    "/ the number of comparisons, because one of them is enough for it. The seeds are "
    "those of fine-tuning; each system was pre-trained once, as in the paper, so the "
    "intervals do not say how much another pre-training run, other text or another "
    "dev set would change. Undecided means that these runs cannot tell, not that "
    "there is no difference. Reproduced: every comparison's 95% interval lies on the "
    "claim's side (or, for “matters little”, within its margin, dotted). Contradicted: "
    "one interval, widened as said, lies on the other side. One seed decides nothing."
)


def shown(cell: Cell) -> str:
    """A cell: mean, interval, and the paper's figure in brackets."""
    ours = verdicts.shown(list(cell.seeds.values()))
    return ours if cell.paper is None else f"{ours} [{cell.paper:.1f}]"


def score_rows(found: Results) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The table's rows and header."""
    rows = [
        (s.name, *(shown(found.cells[s.name, c.key]) for c in found.columns))
        for s in found.table.systems
    ]
    if found.baselines:
        values = [found.baselines.get(column.key) for column in found.columns]
        shown_values = ("-" if value is None else f"{value:.1f}" for value in values)
        rows.append(("(majority class)", *shown_values))
    return rows, ("system", *(column.title for column in found.columns))


def published_rows(found: Results) -> list[Table]:
    """All rows of the paper's table, where some are of other systems than ours."""
    table = found.table
    rows = table.published.rows
    if rows.keys() <= {system.paper for system in table.systems}:
        return []
    titles = published.TITLES | {column.key: column.title for column in table.columns}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    rows_of = [
        (name, *("" if row.get(key) is None else f"{row[key]:.1f}" for key in keys))
        for name, row in rows.items()
    ]
    return [Table(rows_of, ("published", *(titles[key] for key in keys)))]


def loss_rows(found: Results) -> list[Table]:
    """What pre-training reached on held-out text, beside the paper's perplexity."""
    rows: list[tuple[str, ...]] = []
    papers = {system.name: system.paper for system in found.table.systems}
    for name, last in found.losses.items():
        if last:
            row = found.table.published.rows.get(papers.get(name, ""), {})
            paper = row.get("perplexity")
            ours = f"{last.get('perplexity', math.nan):.2f}"
            ours += "" if paper is None else f" [{paper:.2f}]"
            accuracy = last.get("next_sentence_accuracy")
            nsp = "-" if accuracy is None else f"{100 * accuracy:.1f}"
            if "next_sentence_majority" in last:
                nsp += f" ({100 * last['next_sentence_majority']:.1f})"
            rows.append((name, ours, nsp, f"{last['step']:,}"))
    header = ("pre-training", "perplexity", "next sentence, % (majority)", "steps")
    return [Table(rows, header, perplexities(found))] if rows else []


def perplexities(found: Results) -> str:
    """What the perplexities are of."""
    own = " ELMo's: of every word, the mean of both directions." * bool(
        found.costs.get("ELMo")
    )
    return (
        "Perplexities of different kinds of model are no comparison. A masked LM's: of "
        "masked pieces, given both sides. A left-to-right model's: of every piece, "
        f"given those before it.{own}"
    )


def cost_rows(found: Results) -> list[Table]:
    """What the pre-training of systems that are compared read and took."""
    rows: list[tuple[str, ...]] = []
    for name, cost in found.costs.items():
        if cost:
            took = duration(cost["seconds"])
            rows.append(
                (name, f"{cost['words']:,.0f}", f"{cost['steps']:,}",
                 f"{cost['positions']:,}", f"{cost['parameters']:,}",
                 f"{cost['flops']:.2g}", took)
            )  # fmt: skip
    header = ("words", "steps", "positions", "parameters", "FLOPs", "time")
    return [Table(rows, ("pre-training", *header), COSTS)] if rows else []


def score_plot(found: Results, column: Column) -> Any:
    """Every seed of a column, the mean and its 95% interval, by system."""
    seeds = {
        s.name: [*found.cells[s.name, column.key].seeds.values()]
        for s in found.table.systems
    }
    figure, panel = plots.intervals(seeds, title=column.title)
    if column.key in found.baselines:
        majority = found.baselines[column.key]
        panel.axvline(majority, color="black", linewidth=0.8, linestyle=":")
    return figure


def difference_plot(found: Results, verdict: verdicts.Verdict) -> Any:
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


def line_plots(found: Results) -> Any:
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
