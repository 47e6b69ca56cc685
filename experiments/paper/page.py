"""The report as one HTML file: no script, no network, plots inside."""

from collections.abc import Sequence
from html import escape
from typing import Any

from experiments.lib import plots, report
from experiments.lib.progress import duration
from experiments.lib.verdicts import CONTRADICTED, REPRODUCED, Verdict
from experiments.paper import figures
from experiments.paper.results import Results
from experiments.paper.text import (
    COSTS,
    HOW_TO_READ,
    cost_rows,
    loss_rows,
    perplexities,
    published_rows,
    score_rows,
)

_STYLE = """
.scores td, td:not(:last-child) { white-space: nowrap; }
td:last-child { min-width: 12rem; }
.verdicts { list-style: none; padding: 0; } .verdicts li { display: flex; }
.word { flex: 0 0 9.2rem; font-weight: 600; }
.scores td:last-child { min-width: 0; }
.runs td:last-child { min-width: 40rem; font-size: .85rem; overflow-wrap: anywhere; }
section { border-top: 1px solid #bbb; margin-top: 1.5rem; }
@media print { section { break-inside: avoid; } }
"""
# Told apart without colour.
_MARKS = {REPRODUCED: "✓", CONTRADICTED: "✗"}


def page(found: Results) -> str:
    """The file's text."""
    published = found.table.published
    title = f"{published.title}, size {found.size}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="small">{escape(found.table.name)}: {escape(published.source)}</p>',
        _summary(found),
        _failures(found),
        "<h2>Scores</h2>",
        "<p>Mean over seeds and 95% interval, on dev, in points. In brackets the "
        "paper's figure, of other models and more text.</p>",
        _scores(*score_rows(found)),
    ]
    if context := published_rows(found):
        body += ["<h2>As published</h2>", _scores(*context)]
    if any(found.losses.values()):
        body += ["<h2>Pre-training, on held-out text</h2>", _scores(*loss_rows(found))]
        body.append(f'<p class="small">{escape(perplexities(found))}</p>')
    if any(found.costs.values()):
        body += ["<h2>What pre-training took</h2>", _scores(*cost_rows(found))]
        body.append(f'<p class="small">{escape(COSTS)}</p>')
    for said, drawn in figures.every(found):
        body.append(report.figure("".join(map(plots.svg, drawn)), said))
    body.append("<h2>Claims of the paper</h2>")
    if not found.verdicts:
        body.append("<p>This table tests no claim at this size.</p>")
    body += [_claim(found, verdict) for verdict in found.verdicts]
    body.append(f"<h2>How to read it</h2><p>{escape(HOW_TO_READ)}</p>")
    body.append(_rules())
    if found.table.note:
        body.append(f"<p>{escape(found.table.note)}</p>")
    body += [
        "<h2>Circumstances</h2>",
        report.table(list(found.about.items()), ("", "")),
    ]
    body += ["<h2>Runs</h2>", _runs(found.runs)]
    return report.page(title, body, _STYLE)


def _summary(found: Results) -> str:
    items = [
        f'<li><span class="word">{_word(verdict)}</span>'
        f"<span>{escape(verdict.claim.text)}</span></li>"
        for verdict in found.verdicts
    ]
    return f'<ul class="verdicts">{"".join(items)}</ul>' if items else ""


def _word(verdict: Verdict) -> str:
    return f"{_MARKS.get(verdict.word, '?')} {verdict.word}"


def _failures(found: Results) -> str:
    failed = [run for run in found.runs if run["error"]]
    if not failed:
        return ""
    items = "".join(
        f"<li>{escape(run['folder'])}: {escape(run['error'])}</li>" for run in failed
    )
    return f"<p><strong>{len(failed)} runs failed:</strong></p><ul>{items}</ul>"


def _claim(found: Results, verdict: Verdict) -> str:
    claim = verdict.claim
    figure = figures.differences(found, verdict)
    lines = "".join(f"<li>{escape(part.line)}</li>" for part in verdict.parts)
    parts = [
        f"<h3>{escape(claim.text)}</h3>",
        f"<p><strong>{_word(verdict)}</strong>: {escape(verdict.why)} "
        f'<span class="small">(the paper: {escape(claim.source)})</span></p>',
        f'<ul class="small">{lines}</ul>' if lines else "",
    ]
    if figure is not None:
        said = "Strokes: seeds; dot and line: mean and 95% interval; white: the paper."
        parts.insert(2, report.figure(plots.svg(figure), said))
    return f"<section>{''.join(parts)}</section>"


def _rules() -> str:
    return (
        "<p>Reproduced: every comparison's 95% interval lies on the claim's side (or, "
        "for “matters little”, within its margin, dotted). Contradicted: one interval, "
        "widened for the number of comparisons (Bonferroni), lies on the other side. "
        "Otherwise undecided; one seed decides nothing.</p>"
    )


def _scores(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    return f'<div class="scores">{report.table(rows, header)}</div>'


def _runs(runs: Sequence[Any]) -> str:
    rows = [
        (
            *(run["state"], run["kind"]),
            "-" if run["seconds"] is None else duration(run["seconds"]),
            run["command"],
        )
        for run in runs
    ]
    done = sum(run["state"] == "done" for run in runs)
    return (
        f'<details class="runs"><summary>{done} of {len(runs)} done; their commands'
        f"</summary>{report.table(rows, ('', 'kind', 'took', 'command'))}</details>"
    )
