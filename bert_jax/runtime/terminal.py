"""Lines, tables and tqdm's progress bar."""

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsFloat

from tqdm import tqdm

from bert_jax.errors import UserError, escape_controls

BAR = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}, {remaining} left"
_SPEED = {"sequences_per_second": "{:,.1f} sequences/s", "mfu": "MFU {:.1%}"}


def is_live() -> bool:
    """Returns whether standard error is a terminal or Jupyter."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def live_line(active: bool = True, **options: Any) -> tqdm:
    """Opens tqdm's line in a terminal or Jupyter. Elsewhere it only measures time."""
    shown = active and is_live()
    file = sys.stderr if shown else os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    return tqdm(file=file, dynamic_ncols=True, **options)


def count_for(bar: tqdm, items: Iterable[object]) -> None:
    """Counts items in a thread, from when on a bar shows their number and the time
    left."""

    def count() -> None:
        with contextlib.suppress(UserError):  # whoever reads the items reports it
            bar.total = sum(1 for _ in items)
            bar.refresh()

    threading.Thread(target=count, daemon=True).start()


def show_progress(bar: tqdm, values: Mapping[str, SupportsFloat]) -> str:
    """Shows the loss in a run's bar. Returns a line: the loss, the step, the speed and
    the time left.

    Args:
      values: `loss`, perhaps its terms `..._loss`, `sequences_per_second`, `mfu`.
    """
    names = [n for n in values if n.endswith("_loss") and n != "usual_loss"]
    terms = [f"{n[:-5].replace('_', ' ')} {float(values[n]):.4f}" for n in names]
    loss = f"loss {float(values['loss']):.4f}"
    loss += f" ({' + '.join(terms)})" if len(terms) > 1 else ""
    bar.set_description_str(loss)
    known = [name for name in _SPEED if name in values]
    speed = [_SPEED[name].format(float(values[name])) for name in known]
    left = tqdm.format_meter(**bar.format_dict | {"bar_format": "{remaining} left"})
    return ", ".join([loss, f"step {bar.n}/{bar.total}", *speed, left])


def print_line(text: str) -> None:
    """Prints a line to standard error, above live ones. Any thread may call it."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


def format_table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """Formats plain text with aligned columns. A column of numbers is right-aligned.

    A number may be text with a unit, such as "12.3 s". An empty cell counts as one.
    Floats have three decimals. Every row has as many cells as the header.
    """
    texts = (
        [f"{x:.3f}" if isinstance(x, float) else str(x) for x in row]
        for row in (header, *rows)
    )
    cells = [[escape_controls(" ".join(x.splitlines())) for x in row] for row in texts]
    columns = list(zip(*cells, strict=True))
    number = re.compile(r"[-+]?[\d.]|[-+]?(nan|inf)$|$")
    padded = []
    for column in columns:
        width = max(map(len, column))
        right = all(number.match(cell) for cell in column[1:])
        padded.append([c.rjust(width) if right else c.ljust(width) for c in column])
    lines = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    rule = "  ".join("-" * len(column[0]) for column in padded)
    return "\n".join([lines[0], rule, *lines[1:]])
