"""Reports: their circumstances, and their form as text, Markdown and LaTeX."""

import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.workers import available_cores
from bert_jax.runtime.storage import write_atomically
from bert_jax.runtime.terminal import format_table

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "transformers")


def processor_name() -> str:
    """Returns the processor's name, where Linux reports it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def package_versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Returns the versions of the packages that are installed."""
    found = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def commit_hash() -> str:
    """Returns the commit of this checkout, or an empty string if unknown."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True)
    except OSError:  # Git is not installed
        return ""
    return found.stdout.strip()


def format_duration(seconds: float) -> str:
    """Formats a time as text, in the largest unit of which it has more than two."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds > 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def facts(
    module: str, arguments: Sequence[str], packages: Sequence[str] = PACKAGES
) -> dict[str, Any]:
    """Returns a result's commit, command, date, hardware and versions."""
    names = ("XLA_FLAGS", "GLIBC_TUNABLES", "OMP_NUM_THREADS", "JAX_PLATFORMS")
    return {
        "commit": commit_hash(),
        "command": f"python -m {module} {shlex.join(arguments)}".strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor_name(),
        "cores": available_cores(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": package_versions(packages),
        "environment": {name: os.environ[name] for name in names if name in os.environ},
    }


def introduction(found: Mapping[str, Any]) -> str:
    """Formats the facts as the lines above a table."""
    packages = ", ".join(f"{name} {v}" for name, v in found["versions"].items())
    lines = [
        f"Made by commit {found['commit']}, command: {found['command']}",
        f"{found['date']}, {found['processor']}, {found['cores']} core(s), load "
        f"{found['load']}, Python {found['python']}, {packages}",
    ]
    lines += [f"{name}={value}" for name, value in found["environment"].items()]
    return "\n".join(lines)


class Table(NamedTuple):
    """Rows under a header, and a note below them."""

    rows: Sequence[Sequence[Any]]
    header: Sequence[str]
    note: str = ""


class Figure(NamedTuple):
    """A plot. `draw` returns a matplotlib figure for `NAME.png` and `NAME.pdf`."""

    name: str
    draw: Callable[[], Any]


class Section(NamedTuple):
    """Paragraphs, tables and figures under a title, which may be empty."""

    title: str
    parts: Sequence[str | Table | Figure]


def format_plain(sections: Iterable[Section]) -> str:
    """Formats the sections as text, without their figures."""
    found = []
    for title, parts in sections:
        texts = []
        for part in parts:
            if isinstance(part, Table):
                shown = format_table(part.rows, part.header)
                texts.append("\n".join(filter(None, (shown, part.note))))
            elif isinstance(part, str):
                texts.append(part)
        if texts:
            texts[0] = f"{title}:\n{texts[0]}" if title else texts[0]
            found += texts
    return "\n\n".join(found)


def write_report(
    folder: Path, sections: Sequence[Section], results: Mapping[str, Any]
) -> str:
    """Writes report.md, its tables as report.tex, its figures as PNG and PDF, and
    results.json. Returns the text to print."""
    blocks, names = [], ["results.json", "report.md", "report.tex"]
    latex = ["% needs \\usepackage{booktabs}"]
    for title, parts in sections:
        blocks += [f"## {title}"] * bool(title)
        for part in parts:
            if isinstance(part, Figure):
                from bert_jax.commands import plots

                figure = part.draw()
                for kind in ("pdf", "png"):
                    names.append(f"{part.name}.{kind}")
                    write_atomically(folder / names[-1], plots.save(figure, kind))
                blocks.append(f"![]({names[-1]})")
            elif isinstance(part, Table):
                note = part.note.replace("\n", "  \n")
                blocks += filter(None, (_markdown(part), note))
                latex += [f"% {title}"] * bool(title) + [_latex(part)]
            else:
                blocks.append(part.replace("\n", "  \n"))  # keeps the lines apart
    write_atomically(folder / "report.md", "\n\n".join(blocks) + "\n")
    write_atomically(folder / "report.tex", "\n\n".join(latex) + "\n")
    write_atomically(folder / "results.json", json.dumps(results, indent=1) + "\n")
    written = ", ".join(str(folder / name) for name in names)
    return f"{format_plain(sections)}\n\nwritten: {written}"


def _markdown(table: Table) -> str:
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    cells = ((str(cell).replace("|", r"\|") for cell in line) for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


# Characters that LaTeX reads as commands, and signs that belong to its mathematics.
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
    }
)
_NUMBER = re.compile(r"[-+±]?\s?\d[\d.,]*(e[-+]?\d+)?%?( ± [\d.]+)?")


def _latex(table: Table) -> str:
    """Formats a table with booktabs' rules. Columns of numbers are flush right."""
    columns = [[str(row[n]) for row in table.rows] for n in range(len(table.header))]
    kinds = [
        "r" if all(map(_NUMBER.fullmatch, filter(None, c))) else "l" for c in columns
    ]

    def line(cells: Iterable[Any]) -> str:
        escaped = (str(cell).translate(_LATEX) for cell in cells)
        # A hyphen before a number is a minus.
        signed = (re.sub(r"(?<![\w.-])-(?=\d)", "$-$", text) for text in escaped)
        return f"{' & '.join(signed)} \\\\"

    rules = [r"\toprule", line(table.header), r"\midrule"]
    body = [*rules, *map(line, table.rows), r"\bottomrule"]
    notes = [f"% {note}" for note in table.note.splitlines()]
    begin, end = f"\\begin{{tabular}}{{{''.join(kinds)}}}", r"\end{tabular}"
    return "\n".join([begin, *body, end, *notes])
