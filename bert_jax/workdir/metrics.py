"""A run's metrics: metrics.jsonl, and TensorBoard's event files next to it."""

import contextlib
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

from bert_jax.runtime.storage import (
    Path,
    in_bucket,
    make_folder,
    name_full_disk,
    write_atomically,
)


class MetricWriter:
    """A writer of `workdir`/metrics.jsonl and a TensorBoard event file next to it.

    A line is an object: `step`, `split`, `time` (seconds since 1970), then the numbers,
    floats in full precision. "nan", "inf" and "-inf" are strings, which float() reads.
    Every line is flushed. A bucket cannot append: both files stay on this machine, and
    `flush` copies them. Raises OSError if the files cannot be written.

    Args:
      resume_step: Step of the checkpoint that the run resumes from. Drops lines of
        later steps, which will be written again. None means no checkpoint.
      active: False for processes other than process 0, which writes.
    """

    def __init__(self, workdir: Path, *, resume_step: int | None, active: bool):
        self._active = active
        last = -1 if resume_step is None else resume_step
        self._path = path = workdir / "metrics.jsonl"
        lines = _lines_until(path, last)
        self._written = {(line["step"], line["split"]) for line in lines.values()}
        if not active:
            return
        make_folder(workdir)
        self._workdir, self._here = workdir, workdir
        if in_bucket(workdir):
            self._here = pathlib.Path(tempfile.mkdtemp(prefix="bert_jax."))
        if path.exists():
            write_atomically(self._here / path.name, b"".join(lines))
        self._lines = (self._here / path.name).open("a", encoding="utf-8")
        self._events = _Events(self._here, last + 1)

    def write(self, step: int, split: str, values: Mapping[str, SupportsFloat]) -> None:
        """Writes one line, and each value as the TensorBoard scalar `split/name`."""
        self._written.add((step, split))
        if not self._active:
            return
        now = time.time()
        plain: dict[str, int | float] = {  # from NumPy's and JAX's scalars too
            name: int(value) if isinstance(value, numbers.Integral) else float(value)
            for name, value in values.items()
        }
        line: dict[str, Any] = {"step": step, "split": split, "time": now}
        line |= {n: x if math.isfinite(x) else str(x) for n, x in plain.items()}
        with name_full_disk(self._path):
            self._lines.write(json.dumps(line, allow_nan=False) + "\n")
            self._lines.flush()
            self._events.write(now, step, {f"{split}/{n}": x for n, x in plain.items()})

    def flush(self) -> None:
        """Returns once every line is in `workdir`."""
        if self._active and self._here is not self._workdir:
            for path in (self._here / "metrics.jsonl", *self._here.glob("events*")):
                (self._workdir / path.name).write_bytes(path.read_bytes())

    def has(self, step: int, split: str) -> bool:
        """Returns whether a line exists, also from before resuming, in any process."""
        return (step, split) in self._written

    def close(self) -> None:
        if self._active:
            self._lines.close()
            self._events.close()
            self.flush()
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
        self.close = self._writer.close
        # Makes TensorBoard hide earlier files' values of this and later steps.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(time.time(), step=step, session_log=start)

    def write(self, now: float, step: int, scalars: Mapping[str, int | float]) -> None:
        values = [
            self._summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
        ]
        self._add(now, step=step, summary=self._summary(value=values))
        self._writer.flush()

    def _add(self, now: float, **fields: Any) -> None:
        self._writer.write_event(self._event(wall_time=now, **fields))


def read_metrics(workdir: Path, split: str) -> list[dict[str, int | float]]:
    """Reads the complete lines of one split: `step`, `time` and the numbers."""
    return [
        {n: float(x) if isinstance(x, str) else x for n, x in line.items()}
        for line in _lines_until(workdir / "metrics.jsonl", math.inf).values()
        if line["split"] == split and line.pop("split")
    ]


def _lines_until(path: Path, last: int | float) -> dict[bytes, dict[str, Any]]:
    """Reads the complete lines up to step `last`, raw and parsed."""
    records = {}
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        with contextlib.suppress(ValueError):  # half a line
            values = json.loads(line)
            if line.endswith(b"\n") and values["step"] <= last:
                records[line] = values
    return records
