"""What a run shows: metrics.jsonl, TensorBoard, the progress line, times, tables."""

import contextlib
import json
import math
import numbers
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsFloat

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2, summary_pb2
from tqdm import tqdm

from bert_jax.errors import UserError
from bert_jax.storage import Path, in_bucket, put

COPY_SECONDS = 60  # between two copies to a bucket
_NOT_FINITE = ("nan", "inf", "-inf")  # as text, since JSON has none of them


class MetricWriter:
    """Appends to `workdir`/metrics.jsonl and to a TensorBoard event file beside it.

    A line is an object: `step`, `split`, `time` (seconds since 1970), then the numbers,
    floats with every digit. JSON has no nan and infinities: they are written as the
    strings "nan", "inf" and "-inf", which Python's float() reads.

    Every line is flushed, so a killed run loses at most the line it was writing. In a
    bucket nothing is appended: both files are kept on this machine, and copied to
    `workdir` by `flush`, and by `write` once a minute.

    Args:
      workdir: an existing folder, or one in a bucket.
      resume_step: the step of the checkpoint that the run goes on from. What an earlier
        run wrote for later steps will be written again, and is dropped, as is half a
        last line. None: no checkpoint, so every earlier line is dropped.
      active: False for the processes that leave the writing to process 0.

    Raises (here, and from `write` and `close`):
      OSError: the files cannot be written, on a full disk for one.
    """

    def __init__(self, workdir: Path, *, resume_step: int | None, active: bool):
        self._active = active
        last = -1 if resume_step is None else resume_step
        self._path = path = workdir / "metrics.jsonl"
        lines = _lines_until(path, last)
        self._written = {(line["step"], line["split"]) for line in lines.values()}
        if not active:
            return
        self._workdir, self._here = workdir, workdir
        if in_bucket(workdir):
            self._here = pathlib.Path(tempfile.mkdtemp(prefix="bert_jax."))
        if path.exists():
            _replace(self._here / path.name, b"".join(lines))
        self._lines = (self._here / path.name).open("a", encoding="utf-8")
        # Not SummaryWriter: its thread keeps a full disk's error to itself. The process
        # id, because names differ by the second only and two runs may start in one.
        self._events = EventsWriter(str(self._here / "events"), f".{os.getpid()}")
        # TensorBoard hides what earlier files hold for this step and later ones.
        self._events.write_event(
            event_pb2.Event(
                wall_time=time.time(),
                step=last + 1,
                session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START),
            )
        )
        self._copied, self._is_ahead = 0.0, True  # of what is in the bucket
        self.flush()

    def write(self, step: int, split: str, values: Mapping[str, SupportsFloat]) -> None:
        """Writes one line, and each value as the TensorBoard scalar `split/name`."""
        self._written.add((step, split))
        if not self._active:
            return
        try:
            self._write(step, split, values)
        except OSError as error:  # a full disk names no file
            error.filename = error.filename or str(self._path)
            raise

    def _write(
        self, step: int, split: str, values: Mapping[str, SupportsFloat]
    ) -> None:
        now = time.time()
        plain = {name: _plain(value) for name, value in values.items()}
        line = {"step": step, "split": split, "time": now}
        line |= {name: _finite_or_text(value) for name, value in plain.items()}
        self._lines.write(json.dumps(line, allow_nan=False) + "\n")
        self._lines.flush()
        scalars = [
            summary_pb2.Summary.Value(tag=f"{split}/{name}", simple_value=value)
            for name, value in plain.items()
        ]
        summary = summary_pb2.Summary(value=scalars)
        self._events.write_event(
            event_pb2.Event(wall_time=now, step=step, summary=summary)
        )
        self._events.flush()
        self._is_ahead = True
        if time.monotonic() - self._copied > COPY_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Returns once every line is in `workdir`."""
        if self._active and self._here is not self._workdir and self._is_ahead:
            for path in (self._here / "metrics.jsonl", *self._here.glob("events*")):
                target = self._workdir / path.relative_to(self._here)
                put(target, path.read_bytes())
            self._copied, self._is_ahead = time.monotonic(), False

    def has(self, step: int, split: str) -> bool:
        """Whether there is such a line, also from the run that is resumed.

        Every process answers alike, given that all see the same `workdir`.
        """
        return (step, split) in self._written

    def close(self) -> None:
        if self._active:
            self._lines.close()
            self._events.close()
            try:
                self.flush()
            finally:
                if self._here is not self._workdir:
                    shutil.rmtree(self._here)


def read(workdir: Path, split: str) -> list[dict[str, int | float]]:
    """The lines of one split in `workdir`/metrics.jsonl, in order: `step`, `time` and
    the numbers. Half a last line is left out; without a file there are none."""
    lines = _lines_until(workdir / "metrics.jsonl", math.inf).values()
    return [
        {
            name: float(value) if isinstance(value, str) else value
            for name, value in line.items()
            if name != "split"
        }
        for line in lines
        if line["split"] == split
    ]


def _lines_until(path: Path, last: int | float) -> dict[bytes, dict[str, Any]]:
    """The whole lines up to step `last`, as they are and as objects."""
    found = {}
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else ()
    for number, line in enumerate(lines, start=1):
        with contextlib.suppress(ValueError):  # half a line
            values = json.loads(line)
            if not _is_record(values):
                raise UserError(
                    f"{path}:{number}: not a record of metrics (a step, a split and "
                    "numbers); remove this line"
                )
            if line.endswith(b"\n") and values["step"] <= last:
                found[line] = values
    return found


def _is_record(values: Any) -> bool:
    match values:
        case {"step": int(step), "split": str(), **rest}:
            return (
                0 <= step < 2**63
                and values["step"] is not True
                and all(
                    value in _NOT_FINITE
                    if isinstance(value, str)
                    else isinstance(value, int | float) and abs(value) < 1e300
                    for value in rest.values()
                )
            )
    return False


def _replace(path: Path, content: bytes) -> None:
    """All of it or, where the process is killed or the disk is full, nothing."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _plain(value: SupportsFloat) -> int | float:
    """A Python number from any scalar: NumPy's and JAX's too."""
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _finite_or_text(value: int | float) -> int | float | str:
    return value if math.isfinite(value) else str(value)


class Progress:
    """A live line where standard error is a terminal; else a plain one for each `log`.

    Args:
      total: steps of the whole run.
      initial: the step that the run starts from.
      active: False for the processes that leave the talking to process 0.
    """

    def __init__(self, total: int, initial: int = 0, *, active: bool = True):
        self._total = total
        self._active = active
        self._told: dict[str, int] = {}
        self._logged = (initial, time.monotonic())
        self._bar = (
            tqdm(total=total, initial=initial, unit="step", dynamic_ncols=True)
            if active and sys.stderr.isatty()
            else None
        )

    def update(self, step: int) -> None:
        """`step` steps are done."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def log(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Shows `loss`, `sequences_per_second`, `tokens_per_second` and `mfu` (a share
        of 1), those of them that `values` has."""
        shown = _shown(values)
        if self._bar is not None:
            self._bar.set_postfix_str(shown, refresh=False)
            self.update(step)
            self._bar.refresh()
        elif self._active:
            last_step, last_time = self._logged
            now = time.monotonic()
            left = (self._total - step) * (now - last_time) / max(step - last_step, 1)
            self._logged = (step, now)
            eta = tqdm.format_interval(left)
            self.note(f"step {step}/{self._total}, {shown}, {eta} left")

    def note(self, text: str) -> None:
        """Prints a line, above the live one where there is one."""
        if self._active:
            say(text)

    def tell(self, counts: Mapping[str, int]) -> None:
        """Notes each count that has changed: how many of what."""
        for what, count in counts.items():
            if self._told.get(what) != count:
                self.note(f"{what}: {count:,}")
        self._told = dict(counts)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _shown(values: Mapping[str, SupportsFloat]) -> str:
    formats = {
        "loss": "loss {:.4f}",
        "sequences_per_second": "{:,.1f} sequences/s",
        "tokens_per_second": "{:,.0f} tokens/s",
        "mfu": "MFU {:.1%}",
    }
    return ", ".join(
        text.format(float(values[name]))
        for name, text in formats.items()
        if name in values
    )


def say(text: str) -> None:
    """Prints a line on standard error, above live ones; from any thread."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


class Stopwatch:
    """Wall time by name: `with clock("evaluation"): ...`, as often as it comes."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._names: list[str] = []
        self._turns = 0

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        self._names.append(name)
        self._turns += 1
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self._names.pop()
            self._turns += 1
            self._totals[name] = self._totals.get(name, 0.0) + elapsed

    def state(self) -> tuple[int, str]:
        """How often anything began or ended, and what is under way now, if anything;
        may be asked from another thread."""
        names = self._names[-1:]
        return self._turns, names[0] if names else ""

    def totals(self) -> dict[str, float]:
        """Seconds by name, in the order in which the names first came."""
        return dict(self._totals)


def table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """Plain text, columns aligned: to the right where every cell is a number.

    A number may be text with its unit, as "12.3 s"; an empty cell is either. Floats are
    shown with three decimals. Every row has as many cells as the header.
    """
    cells = [
        [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in rows
    ]
    columns = list(zip(header, *cells, strict=True))
    number = re.compile(r"[-+]?[\d.]|[-+]?(nan|inf)$|$")
    padded = []
    for column in columns:
        width = max(map(len, column))
        right = all(number.match(cell) for cell in column[1:])
        padded.append([c.rjust(width) if right else c.ljust(width) for c in column])
    lines = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    rule = "  ".join("-" * len(column[0]) for column in padded)
    return "\n".join([lines[0], rule, *lines[1:]])
