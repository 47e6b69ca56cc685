"""Prints lines, tables and a progress bar."""

import contextlib
import math
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsFloat

from tqdm import tqdm

from bert_jax.errors import printable

_BAR = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}, {remaining} left"
_SECONDS = 30  # between two lines of a log


class Progress:
    """A line per `log`; in a terminal or in Jupyter a live one below them.

    Args:
      total: steps of the whole run.
      initial: the step that the run starts from.
      active: False for processes other than process 0, which prints.
    """

    def __init__(self, total: int, initial: int = 0, *, active: bool = True):
        self._total = total
        self._active = active
        self._noted: dict[str, int] = {}
        self._begun = self._logged = (initial, time.monotonic())
        self._bar = (
            tqdm(total=total, initial=initial, dynamic_ncols=True, bar_format=_BAR)
            if active and _is_live()
            else None
        )

    def update(self, step: int) -> None:
        """Sets the number of finished steps.

        The first one's time is left out of the pace: it waits for the compiler.
        """
        is_first = self._logged == self._begun
        if is_first:
            self._logged = (step, time.monotonic())
        if self._bar is not None:
            if is_first:
                self._bar.unpause()
            self._bar.update(step - self._bar.n)
            if is_first:
                self._bar.refresh()  # it shows that the run moves

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What takes time once, such as compiling, is left out of the pace."""
        start = time.monotonic()
        yield
        taken = time.monotonic() - start
        self._begun, self._logged = (
            (step, moment + taken) for step, moment in (self._begun, self._logged)
        )
        if self._bar is not None:
            self._bar.start_t += taken
            self._bar.last_print_t += taken

    def log(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Prints the loss, the step, the speed and the time left.

        Args:
          values: `loss` and, where it is a sum, each `..._loss`; perhaps
            `sequences_per_second`, and `mfu` (a fraction).
        """
        is_first = self._logged[0] == step
        last_step, last_time = self._begun if is_first else self._logged
        now = time.monotonic()
        left = (self._total - step) * (now - last_time) / max(step - last_step, 1)
        self._logged = (step, now)
        loss, *speed = _shown(values)
        loss += _summed(values)
        parts = [loss, f"step {step}/{self._total}", *speed]
        self.note(", ".join([*parts, f"{tqdm.format_interval(left)} left"]))
        if self._bar is not None:
            self._bar.set_description_str(loss, refresh=False)
            self.update(step)
            self._bar.refresh()

    def note(self, text: str) -> None:
        """Prints a line, above the live one if there is one."""
        if self._active:
            say(text)

    def tell(self, counts: Mapping[str, int]) -> None:
        """Prints each count that has changed, with its name."""
        for name, count in counts.items():
            if self._noted.get(name) != count:
                self.note(f"{name}: {count:,}")
        self._noted = dict(counts)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class RowProgress:
    """Rows done, rows a second and the time left, as rows are answered.

    In a terminal or in Jupyter a live line, else a line after the second call of `add`
    and then every 30 seconds.

    Args:
      total: Rows of the whole input. None means unknown.
      done: Rows that were done before.
      active: False prints nothing.
    """

    def __init__(self, total: int | None, done: int = 0, *, active: bool = True):
        self._total, self._done = total, done
        self._begun: tuple[int, float] | None = None
        self._printed = -math.inf
        self._active = active
        known = "" if total is None else "/{total:,}"
        left = "" if total is None else ", {remaining} left"
        bar = "" if total is None else "{percentage:3.0f}% |{bar}| "
        self._bar = (
            tqdm(
                total=total,
                initial=done,
                unit=" rows",
                dynamic_ncols=True,
                bar_format=f"{bar}{{n:,}}{known} rows, {{rate_noinv_fmt}}{left}",
            )
            if active and _is_live()
            else None
        )

    def add(self, count: int) -> None:
        """Counts rows. The pace begins with the first ones, which wait for the
        compiler."""
        now = time.monotonic()
        self._done += count
        is_first = self._begun is None
        self._begun = self._begun or (self._done, now)
        if self._bar is not None:
            if is_first:
                self._bar.unpause()
            self._bar.update(count)
        elif self._active and not is_first and now - self._printed >= _SECONDS:
            rows, start = self._begun
            self._begun, self._printed = (self._done, now), now
            rate = (self._done - rows) / max(now - start, 1e-9)
            line = f"{self._done:,} rows, {rate:,.4g} rows/s"
            if self._total is not None:
                left = tqdm.format_interval(
                    (self._total - self._done) / max(rate, 1e-9)
                )
                line = f"{self._done:,} of {self._total:,} rows, {rate:,.4g} rows/s"
                line += f", {left} left"
            say(line)

    def close(self) -> None:
        """Ends the live line."""
        if self._bar is not None:
            self._bar.close()


def _is_live() -> bool:
    """Whether a line can be written over."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _shown(values: Mapping[str, SupportsFloat]) -> list[str]:
    formats = {
        "loss": "loss {:.4f}",
        "sequences_per_second": "{:,.1f} sequences/s",
        "mfu": "MFU {:.1%}",
    }
    return [
        text.format(float(values[name]))
        for name, text in formats.items()
        if name in values
    ]


def _summed(values: Mapping[str, SupportsFloat]) -> str:
    """What a loss is the sum of, by name; nothing if it is one loss."""
    parts = []
    for name, value in values.items():
        *words, last = name.split("_")
        if words and last == "loss" and name != "usual_loss":  # the mean before
            called = " ".join("LM" if word == "lm" else word for word in words)
            parts.append(f"{called} {float(value):.4f}")
    return f" ({' + '.join(parts)})" if len(parts) > 1 else ""


def say(text: str) -> None:
    """Prints a line to standard error, above live ones; any thread may call it."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Shows what takes a while on a live line, until it is done."""
    with tqdm(desc=text, bar_format="{desc} ...", leave=False, disable=not _is_live()):
        yield


def width() -> int:
    """Columns of the terminal, between 40 and 100; 80 for a file."""
    return min(100, max(40, shutil.get_terminal_size((80, 24)).columns))


def table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """Plain text with aligned columns; a column of numbers is right-aligned.

    A number may be text with a unit, such as "12.3 s"; an empty cell counts as one.
    Floats have three decimals. Every row has as many cells as the header.
    """
    cells = [
        [f"{cell:.3f}" if isinstance(cell, float) else _cell(cell) for cell in row]
        for row in (header, *rows)
    ]
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


def _cell(value: object) -> str:
    return printable(" ".join(str(value).splitlines()))
