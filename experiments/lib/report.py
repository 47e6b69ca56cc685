"""What every report has: its circumstances, and how it stands in files.

The standard library alone: measurements import it where only JAX is installed.
"""

import json
import os
import platform
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "transformers")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111; max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #ddd; }
td { max-width: 40rem; overflow-wrap: anywhere; } p { white-space: pre-line; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
.small { color: #444; font-size: .9rem; }
figure { margin: 1rem 0; } figcaption { color: #444; font-size: .9rem; }
"""


def processor() -> str:
    """The processor's name, where Linux tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """The installed ones of the packages."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def facts(
    module: str, arguments: Sequence[str], packages: Sequence[str] = PACKAGES
) -> dict[str, Any]:
    """What identifies a result: command, date, hardware, versions, environment."""
    names = ("XLA_FLAGS", "GLIBC_TUNABLES", "OMP_NUM_THREADS", "JAX_PLATFORMS")
    return {
        "command": f"python -m {module} {shlex.join(arguments)}".strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": versions(packages),
        "environment": {name: os.environ[name] for name in names if name in os.environ},
    }


def introduction(found: Mapping[str, Any]) -> str:
    """The facts as the lines above a table."""
    packages = ", ".join(f"{name} {v}" for name, v in found["versions"].items())
    lines = [
        f"$ {found['command']}",
        f"{found['date']}, {found['processor']}, {found['cores']} core(s), load "
        f"{found['load']}, Python {found['python']}, {packages}",
    ]
    lines += [f"{name}={value}" for name, value in found["environment"].items()]
    return "\n".join(lines)


def listed(found: Mapping[str, Any]) -> str:
    """A line for each of the facts."""
    return "\n".join(f"{name}: {said}" for name, said in found.items())


def write(folder: Path, results: Mapping[str, Any], text: str, html: str = "") -> str:
    """Writes results.json, report.txt and, if there is one, report.html.

    Returns:
      A line that names them.
    """
    from bert_jax.runtime.storage import write_atomically

    contents = {"results.json": json.dumps(results, indent=1), "report.txt": text}
    contents |= {"report.html": html} if html else {}
    for name, content in reversed(contents.items()):  # the first says that all is there
        write_atomically(folder / name, f"{content}\n")
    return f"written: {', '.join(str(folder / name) for name in contents)}"


class Table(NamedTuple):
    """Rows under a header, and what is to be known of them."""

    rows: Sequence[Sequence[Any]]
    header: Sequence[str]
    note: str = ""


class Figure(NamedTuple):
    """A plot with its caption, of the page alone; `draw` gives it as SVG."""

    draw: Callable[[], str]
    said: str


class Section(NamedTuple):
    """Some paragraphs, tables and figures under a title, which may be empty."""

    title: str
    parts: Sequence[str | Table | Figure]


def plain(sections: Iterable[Section]) -> str:
    """The sections as text, without their figures."""
    from bert_jax.runtime import terminal

    found = []
    for title, parts in sections:
        texts = []
        for part in parts:
            if isinstance(part, Table):
                shown = terminal.table(part.rows, part.header)
                texts.append("\n".join(filter(None, (shown, part.note))))
            elif isinstance(part, str):
                texts.append(part)
        if texts:
            texts[0] = f"{title}:\n{texts[0]}" if title else texts[0]
            found += texts
    return "\n\n".join(found)


def page(title: str, sections: Iterable[Section]) -> str:
    """The sections as a whole HTML file: no script, no network, plots inside."""
    body = [f"<h1>{escape(title)}</h1>"]
    for section in sections:
        body += [f"<h2>{escape(section.title)}</h2>"] * bool(section.title)
        body += map(_element, section.parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>"
    )


def _element(part: str | Table | Figure) -> str:
    """A part of a section as HTML."""
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Figure):
        caption = f"<figcaption>{escape(part.said)}</figcaption>"
        return f"<figure>{part.draw()}{caption}</figure>"
    head = _row(part.header, "th") if any(part.header) else ""
    lines = "".join(_row(row, "td") for row in part.rows)
    note = f'<p class="small">{escape(part.note)}</p>' if part.note else ""
    return f'<div class="scroll"><table>{head}{lines}</table></div>{note}'


def _row(cells: Sequence[Any], tag: str) -> str:
    inside = "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"
