"""The report as one HTML file: no script, no network, plots inside."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from experiments.lib import plots
from experiments.lib.progress import duration
from experiments.lib.verdicts import CONTRADICTED, REPRODUCED, Verdict
from experiments.paper.results import Results
from experiments.paper.text import (
    COSTS,
    HOW_TO_READ,
    cost_rows,
    loss_rows,
    part_line,
    perplexities,
    published_rows,
    score_rows,
)

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111; max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #ddd; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
.scores td, td:not(:last-child) { white-space: nowrap; }
td:last-child { min-width: 12rem; }
.verdicts { list-style: none; padding: 0; } .verdicts li { display: flex; }
.word { flex: 0 0 9.2rem; font-weight: 600; }
.scores td:last-child { min-width: 0; } td:has(code) { min-width: 40rem; }
.small { color: #444; font-size: .9rem; }
code { font-size: .85rem; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } figcaption { color: #444; font-size: .9rem; }
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
    for said, figures in plots.every(found):
        body.append(_figure("".join(map(plots.svg, figures)), said))
    body.append("<h2>Claims of the paper</h2>")
    if not found.verdicts:
        body.append("<p>This table tests no claim at this size.</p>")
    body += [_claim(found, verdict) for verdict in found.verdicts]
    body.append(f"<h2>How to read it</h2><p>{escape(HOW_TO_READ)}</p>")
    body.append(_rules())
    if found.table.note:
        body.append(f"<p>{escape(found.table.note)}</p>")
    body += ["<h2>Circumstances</h2>", _table(list(found.about.items()), ("", ""))]
    body += ["<h2>Runs</h2>", _runs(found.runs)]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body></html>\n"
    )


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
    figure = plots.differences(found, verdict)
    lines = "".join(f"<li>{escape(part_line(part))}</li>" for part in verdict.parts)
    parts = [
        f"<h3>{escape(claim.text)}</h3>",
        f"<p><strong>{_word(verdict)}</strong>: {escape(verdict.why)} "
        f'<span class="small">(the paper: {escape(claim.source)})</span></p>',
        f'<ul class="small">{lines}</ul>' if lines else "",
    ]
    if figure is not None:
        said = "Strokes: seeds; dot and line: mean and 95% interval; white: the paper."
        parts.insert(2, _figure(plots.svg(figure), said))
    return f"<section>{''.join(parts)}</section>"


def _rules() -> str:
    return (
        "<p>Reproduced: every comparison's 95% interval lies on the claim's side (or, "
        "for “matters little”, within its margin, dotted). Contradicted: one interval, "
        "widened for the number of comparisons (Bonferroni), lies on the other side. "
        "Otherwise undecided; one seed decides nothing.</p>"
    )


def _figure(svg: str, said: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(said)}</figcaption></figure>"


def _scores(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    return f'<div class="scores">{_table(rows, header)}</div>'


def _table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    head = f"<tr>{_cells(header, 'th')}</tr>" if any(header) else ""
    lines = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table>{head}{lines}</table></div>'


def _cells(row: Iterable[Any], tag: str) -> str:
    return "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row)


def _runs(runs: Sequence[Any]) -> str:
    rows = []
    for run in runs:
        took = "-" if run["seconds"] is None else duration(run["seconds"])
        rows.append(
            f"<tr><td>{run['state']}</td><td>{escape(run['kind'])}</td><td>{took}</td>"
            f"<td><code>{escape(run['command'])}</code></td></tr>"
        )
    head = "<tr><th></th><th>kind</th><th>took</th><th>command</th></tr>"
    done = sum(run["state"] == "done" for run in runs)
    return (
        f"<details><summary>{done} of {len(runs)} done; their commands</summary>"
        f'<div class="scroll"><table>{head}{"".join(rows)}</table></div></details>'
    )
