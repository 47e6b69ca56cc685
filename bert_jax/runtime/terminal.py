"""Prints lines, tables and tqdm's progress bar."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

from tqdm import tqdm

from bert_jax.errors import escape_controls

_BAR = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}, {remaining} left"
_SPEED = {"sequences_per_second": "{:,.1f} sequences/s", "mfu": "MFU {:.1%}"}


def live_line(active: bool = True, **options: Any) -> tqdm:
    """Opens tqdm's line in a terminal or Jupyter. Elsewhere it only measures time."""
    is_live = active and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    file = sys.stderr if is_live else os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    return tqdm(file=file, dynamic_ncols=True, **options)


class Progress:
    """A line per `log`, and in a terminal or in Jupyter a live one below them.

    Args:
      total: Steps of the whole run, which starts from `initial`.
      active: False for processes other than process 0, which prints.
    """

    def __init__(self, total: int, initial: int = 0, *, active: bool = True):
        self._active = active
        self._noted: dict[str, int] = {}
        self._bar = live_line(active, total=total, initial=initial, bar_format=_BAR)
        self.close = self._bar.close  # ends the live line

    def update(self, step: int) -> None:
        """Sets the number of finished steps."""
        self._bar.update(step - self._bar.n)

    def log(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Prints the loss, the step, the speed and the time left.

        Args:
          values: `loss`, perhaps its terms `..._loss`, `sequences_per_second`, `mfu`.
        """
        self.update(step)
        loss = f"loss {float(values['loss']):.4f}{_terms(values)}"
        self._bar.set_description_str(loss)
        known = [name for name in _SPEED if name in values]
        speed = [_SPEED[name].format(float(values[name])) for name in known]
        form = self._bar.format_dict | {"bar_format": "{remaining} left"}
        left = tqdm.format_meter(**form)
        self.note(", ".join([loss, f"step {step}/{self._bar.total}", *speed, left]))

    def note(self, text: str) -> None:
        """Prints a line, above the live one if there is one."""
        if self._active:
            print_line(text)

    def tell(self, counts: Mapping[str, int]) -> None:
        """Prints each count that has changed, with its name."""
        for name, count in counts.items():
            if self._noted.get(name) != count:
                self.note(f"{name}: {count:,}")
        self._noted = dict(counts)


def _terms(values: Mapping[str, SupportsFloat]) -> str:
    """Formats the terms of a loss by name, empty if it has one."""
    names = [n for n in values if n.endswith("_loss") and n != "usual_loss"]
    terms = [f"{n[:-5].replace('_', ' ')} {float(values[n]):.4f}" for n in names]
    return f" ({' + '.join(terms)})" if len(terms) > 1 else ""


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
