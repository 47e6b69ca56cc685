"""The paper's tables and figure, each by one command, at any size.

    python -m experiments.paper TABLE --size=tiny --data=FOLDER [--corpus=SOURCES] \
        [--tasks=sst2,mrpc] [--seeds=5] [--output=runs/paper] [--plan] \
        [--config.FIELD=VALUE ...] [--finetuning.FIELD=VALUE ...]

TABLE is table1 ... table8, figure5, features or imdb. It pre-trains the systems that
the table compares, fine-tunes them with several seeds, and writes OUTPUT/TABLE-SIZE/
report.md, its plots and results.json: our scores next to the paper's, and whether each
of its claims is reproduced, contradicted or undecided. The same command resumes where
it stopped. --plan only shows which runs are done and which remain. See docs/paper.md.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

from bert_jax.commands import command_line, plots, report, runner
from bert_jax.commands.report import Figure, Section, Table, format_duration
from experiments.lib import verdicts
from experiments.paper import results, runs
from experiments.paper.options import Options, parse
from experiments.paper.results import Cell, Results


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options = parse(argv, __doc__)
    planned = runs.plan(options)
    for name, why in options.missing.items():
        print(f"left out: {name}: {why}", flush=True)
    if options.table.axis and not options.plan:
        command_line.require("matplotlib", "report", "the plot needs matplotlib")
    return runner.finish(
        *(planned, options),
        lambda errors: _write(options, results.collect(options, planned, errors)),
        partial=True,
    )


def _write(options: Options, found: results.Results) -> str:
    """Writes the report and results.json, and returns the text."""
    name = f"{options.table.name}-{options.size}"
    if options.weights:
        name += f"-{runner.digest(*options.weights)}"
    folder = options.output / name
    facts = report.facts("experiments.paper", sys.argv[1:])
    parts = sections(found, report.introduction(facts))
    return report.write_report(folder, parts, {**facts, **results.plain(found)})


def sections(found: Results, introduction: str) -> list[Section]:
    """Returns the report. The figure of a table with an axis needs matplotlib.

    Args:
      introduction: Commit, command and hardware.
    """
    table = found.table
    title = f"{table.published.title}, size {found.size}"
    begin = [f"{title} ({table.name}: {table.published.source})"]
    begin += [f"{verdict.word}: {verdict.claim.text}" for verdict in found.verdicts]
    about = "\n".join(f"{name}: {said}" for name, said in found.about.items())
    how = "docs/paper.md, Reading the report, says what the verdicts mean."
    failed = [f"{run['folder']}: {run['error']}" for run in found.runs if run["error"]]
    figures = [Figure("lines", lambda: line_plots(found))] if table.axis else []
    parts = [
        Section("", ["\n".join(begin)]),
        Section("Runs that failed", ["\n".join(failed)] if failed else []),
        Section("Scores", [Table(*score_rows(found), SCORES), *figures]),
        Section("Pre-training, on held-out text", loss_rows(found)),
        Section("What pre-training took", cost_rows(found)),
        Section("Claims of the paper", [verdict.text for verdict in found.verdicts]),
        Section("How to read it", [*filter(None, (how, table.note))]),
        Section("Circumstances", [introduction, about]),
    ]
    return [part for part in parts if part.parts]


SCORES = (
    "mean and 95% interval over seeds, on dev, in points; in brackets the paper's "
    "figure, of other models and more text"
)
COSTS = (
    "Every system reads the same words. Positions include padding and special tokens; "
    "parameters are those that fine-tuning takes over; FLOPs are by formula; time is "
    "that of the run's last start, evaluation and compilation included."
)
PERPLEXITIES = (
    "Perplexities of different kinds of model cannot be compared. A masked LM's is of "
    "masked tokens, given both sides; a left-to-right model's of every token, given "
    "those before it."
)


def shown(cell: Cell) -> str:
    """Formats a cell: mean, interval, and the paper's figure in brackets."""
    ours = verdicts.shown(list(cell.seeds.values()))
    return ours if cell.paper is None else f"{ours} [{cell.paper:.1f}]"


def score_rows(found: Results) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Returns the table's rows and header."""
    rows = [
        (s.name, *(shown(found.cells[s.name, c.key]) for c in found.columns))
        for s in found.table.systems
    ]
    if found.baselines:
        values = [found.baselines.get(column.key) for column in found.columns]
        shown_values = ("-" if value is None else f"{value:.1f}" for value in values)
        rows.append(("(majority class)", *shown_values))
    return rows, ("system", *(column.title for column in found.columns))


def loss_rows(found: Results) -> list[Table]:
    """Returns pre-training's results on held-out text, with the paper's perplexity."""
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
    return [Table(rows, header, PERPLEXITIES)] if rows else []


def cost_rows(found: Results) -> list[Table]:
    """Returns the words and cost of the pre-training of systems that are compared."""
    rows = [
        (name, f"{cost['words']:,.0f}", f"{cost['steps']:,}",
         f"{cost['positions']:,}", f"{cost['parameters']:,}",
         f"{cost['flops']:.2g}", format_duration(cost["seconds"]))
        for name, cost in found.costs.items() if cost
    ]  # fmt: skip
    header = ("words", "steps", "positions", "parameters", "FLOPs", "time")
    return [Table(rows, ("pre-training", *header), COSTS)] if rows else []


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


if __name__ == "__main__":
    command_line.start(main)
