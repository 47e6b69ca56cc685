"""The report in plain text, and the rows and lines that the page has as well."""

import math

from bert_jax.runtime import terminal
from experiments.lib import published, verdicts
from experiments.lib.progress import duration
from experiments.paper.results import Cell, Results


def report(found: Results) -> str:
    """The report in plain text."""
    table = found.table
    parts = [
        f"{table.published.title} ({table.published.source})",
        f"at size {found.size}: mean and 95% interval over seeds, on dev; the paper's "
        "figure in brackets",
        terminal.table(*score_rows(found)),
    ]
    if context := published_rows(found):
        parts.append(f"as published:\n{terminal.table(*context)}")
    if any(found.losses.values()):
        parts.append(f"{terminal.table(*loss_rows(found))}\n{perplexities(found)}")
    if any(found.costs.values()):
        parts.append(f"{terminal.table(*cost_rows(found))}\n{COSTS}")
    parts += [verdict.text for verdict in found.verdicts]
    if table.note:
        parts.append(table.note)
    parts.append(f"How to read it: {HOW_TO_READ}")
    parts.append("\n".join(f"{name}: {said}" for name, said in found.about.items()))
    failed = [run for run in found.runs if run["error"]]
    parts += [f"failed: {run['folder']}: {run['error']}" for run in failed]
    return "\n\n".join(parts)


COSTS = (
    "Every system reads the same number of words of the same text; a word is what all "
    "three cut text into before they look inside it. Positions are those computed, "
    "padding and special tokens too; parameters those that fine-tuning takes over; "
    "FLOPs by formula; time the whole run's, evaluation and compilation too, by its "
    "log."
)
HOW_TO_READ = (
    "A claim's comparisons subtract two systems' scores seed by seed; the interval is "
    "Student's t at 95%. A contradiction needs a wider one than is shown, at 1 - 0.05 "
    "/ the number of comparisons, because one of them is enough for it. The seeds are "
    "those of fine-tuning; each system was pre-trained once, as in the paper, so the "
    "intervals do not say how much another pre-training run, other text or another "
    "dev set would change. Undecided means that these runs cannot tell, not that "
    "there is no difference."
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


def published_rows(
    found: Results,
) -> tuple[list[tuple[str, ...]], tuple[str, ...]] | None:
    """All rows of the paper's table and their header, where some are of other systems
    than ours; else None."""
    table = found.table
    rows = table.published.rows
    if rows.keys() <= {system.paper for system in table.systems}:
        return None
    titles = published.TITLES | {column.key: column.title for column in table.columns}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    figures = [
        (name, *("" if row.get(key) is None else f"{row[key]:.1f}" for key in keys))
        for name, row in rows.items()
    ]
    return figures, ("published", *(titles[key] for key in keys))


def loss_rows(found: Results) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
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
    return rows, ("pre-training", "perplexity", "next sentence, % (majority)", "steps")


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


def cost_rows(found: Results) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """What the pre-training of systems that are compared read and took."""
    rows: list[tuple[str, ...]] = []
    for name, cost in found.costs.items():
        if cost:
            took = duration(cost.get("seconds"))
            rows.append(
                (name, f"{cost['words']:,.0f}", f"{cost['steps']:,}",
                 f"{cost['positions']:,}", f"{cost['parameters']:,}",
                 f"{cost['flops']:.2g}", took)
            )  # fmt: skip
    header = ("words", "steps", "positions", "parameters", "FLOPs", "time")
    return rows, ("pre-training", *header)
