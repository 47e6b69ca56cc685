"""The report on a prepared folder as a page: one file for a browser, no scripts."""

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from bert_jax.data import records
from bert_jax.data import report as summary
from bert_jax.data.report import Contents
from bert_jax.data.source_counts import counts
from bert_jax.runtime import storage

FILE = "report.html"
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Prepared text</title>
<style>
  :root { color-scheme: light; }
  body { margin: 0 auto; padding: 0 1rem 3rem; max-width: 62rem; color: #111;
         background: #fff; font: 1rem/1.45 system-ui, sans-serif; }
  h1 { margin-bottom: .3rem; }
  h2 { margin: 2rem 0 .5rem; font-size: 1.2rem; }
  p { margin: .3rem 0; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; }
  th, td { padding: .3rem .6rem; border-bottom: 1px solid #ccc; text-align: left;
           vertical-align: top; overflow-wrap: anywhere; }
  th { border-color: #555; overflow-wrap: normal; }
  .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
  .bar { width: 60%; }
  .bar span { display: block; height: 1rem; background: #47729e; }
  .pairs td:nth-child(3) { overflow-wrap: normal; }
  .note { color: #555; font-size: .9rem; }
  small { display: block; color: #555; }
</style></head><body>
<h1>Prepared text</h1>
"""


def write(folder: storage.Path) -> None:
    """Writes report.html into a prepared folder; the same bytes for the same folder."""
    storage.write_atomically(folder / FILE, page(summary.contents(folder)))


def page(contents: Contents) -> str:
    """The whole page."""
    sections = (
        _splits(contents),
        _lengths(contents),
        _cleaning(contents),
        _pairs(contents),
    )
    body = "".join(
        part for section in (*sections, _settings(contents)) for part in section
    )
    return f"{_HEAD}{body}</body></html>\n"


def _splits(contents: Contents) -> Iterator[str]:
    totals = contents.report["totals"]
    every = []
    for name in ("documents", "pieces", "sentences", "tokens", "pairs", "bytes"):
        cells = (f"{totals[split].get(name, 0):,}" for split in totals)
        every.append((name, *cells))
    shares = [records.random_share(totals[split]) for split in totals]
    if any(shares):
        every.append(("random second sentences", *(f"{n:.1%}" for n in shares)))
    yield _table(("", *totals), every)
    if documents := counts(contents.report, "documents"):
        kinds = (
            f"{n + 1}: {its[0]}" for n, its in enumerate(contents.report["sources"])
        )
        rows = zip(kinds, documents, counts(contents.report, "pairs"), strict=True)
        yield "<h2>Sources of train</h2>\n"
        yield _table(
            ("", "documents", "pairs"), [(n, f"{d:,}", f"{p:,}") for n, d, p in rows]
        )
    dev = totals["dev"]
    share = dev["left_out"] / max(1, dev["sentences"] + dev["left_out"])
    yield (
        f"<p>[UNK] is {contents.unknown:.3%} of train's tokens. Of dev's sentences "
        f"{dev['left_out']:,} ({share:.1%}) were left out because train has them; "
        f"{dev['in_train']:,} are left that train has.</p>\n"
    )


def _lengths(contents: Contents) -> Iterator[str]:
    yield "<h2>Tokens a pair</h2>\n"
    bins = summary.histogram(contents)
    most = max(share for _, _, share in bins) or 1
    rows = "".join(
        f'<tr><td class="n">{low}-{high}</td><td class="n">{share:.1%}</td>'
        f'<td class="bar"><span style="width:{share / most:.1%}"></span></td></tr>\n'
        for low, high, share in bins
    )
    yield f'<div class="wide"><table>{rows}</table></div>\n'
    yield (
        f'<p class="note">Of {len(contents.lengths):,} pairs of train, special tokens '
        f"included; mean {contents.lengths.mean():.1f}.</p>\n"
    )


def _cleaning(contents: Contents) -> Iterator[str]:
    told = contents.report.get("cleaning")
    if told is None:
        return
    read, kept = told["read"], told["kept"]
    yield (
        "<h2>Clean-up</h2>\n"
        f"<p>Read: {read['documents']:,} documents, {read['bytes'] / 1e6:,.1f} MB. "
        f"Left: {kept['documents']:,} documents, {kept['bytes'] / 1e6:,.1f} MB.</p>\n"
    )
    rows = [
        (stage.replace("_", " "), *(f"{its[n]:,}" for n in its))
        for stage, its in told["taken"].items()
    ]
    yield _table(("stage", "documents", "paragraphs", "bytes"), rows)
    shown = [
        (stage.replace("_", " "), example)
        for stage, examples in told["examples"].items()
        for example in examples
    ]
    if shown:
        yield '<p class="note">Some of what was taken; documents count from 0, in the '
        yield "order of corpus.sources.</p>\n"
        yield '<div class="wide"><table><tr><th>stage</th><th class="n">document</th>'
        yield "<th>text</th></tr>\n"
        for stage, example in shown:
            yield _taken(stage, example)
        yield "</table></div>\n"


def _taken(stage: str, example: dict[str, Any]) -> str:
    of = f"<small>as {escape(example['of'])}</small>" if "of" in example else ""
    return (
        f'<tr><td>{stage}</td><td class="n">{example["document"]:,}</td>'
        f"<td>{escape(example['text'])}{of}</td></tr>\n"
    )


def _pairs(contents: Contents) -> Iterator[str]:
    yield "<h2>Rows of train, drawn at random</h2>\n"
    yield '<div class="wide"><table class="pairs">\n'
    for one in contents.examples:
        kind = "random" if one.is_random_next else "next"
        second = f"<td>{escape(one.text_b)}</td><td>{kind}</td>" if one.text_b else ""
        yield f"<tr><td>{escape(one.text_a)}</td>{second}</tr>\n"
    yield "</table></div>\n"


def _settings(contents: Contents) -> Iterator[str]:
    """What shaped the folder, but for what stands above."""
    above = ("totals", "cleaning", "settings")
    others = {n: value for n, value in contents.report.items() if n not in above}
    rows = [
        (name, value) for name, value in (contents.report["settings"] | others).items()
    ]
    yield "<h2>Settings</h2>\n"
    yield _table(("", ""), [(name, str(value)) for name, value in rows], number="")


def _table(
    head: Iterable[str], rows: Iterable[tuple[str, ...]], number: str = ' class="n"'
) -> str:
    """A table of numbers; the first column has names."""
    first, *others = head
    titles = "".join(f"<th{number}>{escape(title)}</th>" for title in others)
    lines = (
        [f"<tr><th>{escape(first)}</th>{titles}</tr>"] if any((first, *others)) else []
    )
    for name, *values in rows:
        cells = "".join(f"<td{number}>{escape(value)}</td>" for value in values)
        lines.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    inside = "\n".join(lines)
    return f'<div class="wide"><table>\n{inside}\n</table></div>\n'
