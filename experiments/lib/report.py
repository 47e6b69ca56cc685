"""What every report has: its circumstances, and how it stands in files.

The standard library alone: measurements import it where only JAX is installed.
"""

import json
import math
import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "transformers")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111; max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #ddd; }
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


def between(low: float, high: float, digits: int) -> str:
    """An interval in words; empty where it has no bounds."""
    if not math.isfinite(high - low):
        return ""
    return f"{low:+.{digits}f} to {high:+.{digits}f}"


def write(folder: Path, results: Mapping[str, Any], text: str, html: str = "") -> str:
    """Writes results.json, report.txt and, if there is one, report.html.

    Returns:
      A line that names them.
    """
    from bert_jax.runtime.storage import write_atomically

    contents = {"results.json": json.dumps(results, indent=1), "report.txt": text}
    contents |= {"report.html": html} if html else {}
    for name, content in contents.items():
        write_atomically(folder / name, f"{content}\n")
    return f"written: {', '.join(str(folder / name) for name in contents)}"


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """A whole HTML file: no script, no network.

    Args:
      body: its elements; empty ones are left out.
      style: rules beside those of every page.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body></html>"
    )


def table(rows: Iterable[Sequence[Any]], header: Sequence[str]) -> str:
    """A table as an HTML element; without a head where the header is empty."""
    head = _row(header, "th") if any(header) else ""
    lines = "".join(_row(row, "td") for row in rows)
    return f'<div class="scroll"><table>{head}{lines}</table></div>'


def _row(cells: Sequence[Any], tag: str) -> str:
    inside = "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def figure(drawn: str, said: str) -> str:
    """An SVG element with its caption."""
    return f"<figure>{drawn}<figcaption>{escape(said)}</figcaption></figure>"
