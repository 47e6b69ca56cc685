"""A run's metrics: metrics.jsonl, and TensorBoard's event files beside it."""

import json
import math
import numbers
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Mapping
from typing import Any, SupportsFloat

from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import Path, in_bucket, require_file

COPY_SECONDS = 60  # between two copies to a bucket
_NOT_FINITE = ("nan", "inf", "-inf")  # as text, since JSON has none of them


class MetricWriter:
    """Appends to `workdir`/metrics.jsonl and to a TensorBoard event file beside it.

    A line is an object: `step`, `split`, `time` (seconds since 1970), then the numbers,
    floats in full precision. JSON has no nan and infinities; they are written as the
    strings "nan", "inf" and "-inf", which Python's float() reads.

    Every line is flushed, so a killed run loses at most the line it was writing. A
    bucket cannot append: both files stay on this machine; `flush` copies them to
    `workdir`, and `write` does so once a minute.

    Args:
      workdir: an existing folder, or one in a bucket.
      resume_step: the step of the checkpoint that the run resumes from. Drops earlier
        lines of later steps, which will be written again, and a half-written last
        line. None: no checkpoint, so drops every earlier line.
      active: False for processes other than process 0, which writes.

    Raises (here, and from `write` and `close`):
      OSError: the files cannot be written, such as on a full disk.
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
        self._events = _Events(self._here, last + 1)
        self._copied, self._is_ahead = 0.0, True  # time of copy; bucket is behind
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
        # Python's numbers, of NumPy's and JAX's scalars too.
        plain: dict[str, int | float] = {
            name: int(value) if isinstance(value, numbers.Integral) else float(value)
            for name, value in values.items()
        }
        line: dict[str, Any] = {"step": step, "split": split, "time": now}
        line |= {n: x if math.isfinite(x) else str(x) for n, x in plain.items()}
        self._lines.write(json.dumps(line, allow_nan=False) + "\n")
        self._lines.flush()
        scalars = {f"{split}/{name}": value for name, value in plain.items()}
        self._events.write(now, step, scalars)
        self._is_ahead = True
        if time.monotonic() - self._copied > COPY_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Returns once every line is in `workdir`."""
        if self._active and self._here is not self._workdir and self._is_ahead:
            for path in (self._here / "metrics.jsonl", *self._here.glob("events*")):
                target = self._workdir / path.relative_to(self._here)
                target.write_bytes(path.read_bytes())
            self._copied, self._is_ahead = time.monotonic(), False

    def has(self, step: int, split: str) -> bool:
        """Whether there is such a line, also from before resuming.

        Every process returns the same, provided that all see the same `workdir`.
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


class _Events:
    """A new TensorBoard event file for a run that resumes at `step`."""

    def __init__(self, folder: Path, step: int):
        # Imported late: it also imports torch where torch is installed.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        # Not SummaryWriter: its thread hides a full disk's error. The process id makes
        # the name unique when two runs start in the same second.
        self._writer = EventsWriter(str(folder / "events"), f".{os.getpid()}")
        # Makes TensorBoard hide earlier files' values of this and later steps.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.write_event(
            self._event(wall_time=time.time(), step=step, session_log=start)
        )

    def write(self, now: float, step: int, scalars: Mapping[str, int | float]) -> None:
        """Writes tagged scalars; `now` is in seconds since 1970."""
        values = [
            self._summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
        ]
        summary = self._summary(value=values)
        self._writer.write_event(self._event(wall_time=now, step=step, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def read(workdir: Path, split: str) -> list[dict[str, int | float]]:
    """The lines of one split in `workdir`/metrics.jsonl, in order: `step`, `time` and
    the numbers. Skips a half-written last line; empty without a file."""
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
    """The complete lines up to step `last`, raw and parsed."""
    records = {}
    require_file(path)
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else ()
    for number, line in enumerate(lines, start=1):
        try:
            values = untrusted.loads(line)
        except ValueError:  # half a line
            continue
        except RecursionError:
            values = None
        if not _is_record(values):
            raise UserError(
                f"{path}:{number}: not a record of metrics (a step, a split and "
                "numbers); remove this line"
            )
        if line.endswith(b"\n") and values["step"] <= last:
            records[line] = values
    return records


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
    """Writes all of it, or nothing if the process is killed or the disk is full."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
