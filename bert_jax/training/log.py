"""The log of a run: progress, metrics.jsonl, TensorBoard, trackers, speed."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.runtime import processes, terminal
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
from bert_jax.training.seeds import Seeds
from bert_jax.types import Arrays
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.metrics import MetricWriter
from bert_jax.workdir.trackers import Trackers

# Dense bfloat16 FLOP/s of a device, from the makers' data sheets, by `device_kind`.
PEAK_FLOPS = {
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


class Log:
    """A log that prints lines and writes metrics: each seed's and the seeds' means.

    Attributes:
      finished: Whether the run has ended well, for the trackers.
    """

    def __init__(
        self,
        seeds: Seeds,
        folder: Path,
        config: ConfigDict,
        resume_step: int | None,
        step: int = 0,
    ):
        """Opens the files. Cuts those of a run that resumes to its step.

        Args:
          resume_step: Step at which a run resumes. None means a new run.
          step: First step.
        """
        is_first = processes.is_first()
        self._seeds, self.finished = seeds, False
        self._noted: dict[str, int] = {}
        names = config.train.trackers if is_first else ()
        self._trackers = Trackers(names, folder, workdir.agreed_fields(config))
        folders = seeds.folders(folder)
        self._writers = {
            path: MetricWriter(path, resume_step=resume_step, active=is_first)
            for path in dict.fromkeys((folder, *folders))
        }
        self._all = self._writers[folder]
        self._each = [self._writers[path] for path in folders]
        total = config.train.num_steps
        self._bar = terminal.live_line(
            is_first, total=total, initial=step, bar_format=terminal.BAR
        )
        self.end_progress = self._bar.close  # the live line of a terminal
        # Since the last line: seconds, and sequences, positions and model FLOPs.
        self._seconds, self._done = 0.0, np.zeros(3)

    def note(self, text: str) -> None:
        """Prints a line, above the live one if there is one."""
        if processes.is_first():
            terminal.print_line(text)

    def print_counts(self, counts: Mapping[str, int]) -> None:
        """Prints each count that has changed, with its name."""
        for name, count in counts.items():
            if self._noted.get(name) != count:
                self.note(f"{name}: {count:,}")
        self._noted = dict(counts)

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """Counts the time in this context as the steps': theirs, or a wait for data."""
        start = time.perf_counter()
        yield
        self._seconds += time.perf_counter() - start

    @contextlib.contextmanager
    def compiling(self, length: int) -> Iterator[None]:
        """Prints that a step is compiled. The time left does not count this time."""
        self.note(f"compiling the step at length {length}")
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self._bar.start_t += seconds
        self._bar.last_print_t += seconds

    def count(
        self, step: int, task: Task, batch: Arrays, counted: tuple[float, float]
    ) -> None:
        """Counts a step on a batch, [batch, ...] or [seeds, batch, ...].

        Args:
          step: Number of steps so far.
          counted: See `count_positions`.
        """
        seeds = self._seeds.count
        shapes = {
            name: rows.shape[1:] if seeds > 1 else rows.shape
            for name, rows in batch.items()
        }
        ids = shapes["input_ids"]
        done = (ids[0] * counted[0], math.prod(ids) * counted[1], task.flops(shapes))
        self._done += seeds * np.array(done)
        self._bar.update(step - self._bar.n)

    def write_step(self, step: int, metrics: Arrays) -> None:
        """Writes a step's metrics, and the speed since the last call, including waits
        for data but nothing else.

        `tokens_per_second` counts positions, including padding, but not in packed
        rows. `mfu` is the fraction of the devices' bfloat16 peak, if it is known.
        """
        with self.stepping():
            by_seed = self._seeds.floats(metrics)
        sequences, positions, flops = map(float, self._done / self._seconds)
        self._seconds, self._done = 0.0, np.zeros(3)
        speed = {"sequences_per_second": sequences, "tokens_per_second": positions}
        peak = PEAK_FLOPS.get(jax.devices()[0].device_kind)
        if peak:
            speed["mfu"] = flops / peak / jax.device_count()
        means = self.write(step, "train", [one | speed for one in by_seed])
        self.note(terminal.show_progress(self._bar, means))

    def write(
        self, step: int, split: str, numbers: Sequence[Mapping[str, float]]
    ) -> dict[str, float]:
        """Writes each seed's numbers. Returns their means."""
        means = self._seeds.means(split, numbers)
        self._all.write(step, split, means)
        self._trackers.write(step, split, means)
        if self._seeds.count > 1:
            for writer, values in zip(self._each, numbers, strict=True):
                writer.write(step, split, values)
        return means

    def anomaly(self, step: int, numbers: Sequence[Mapping[str, int | float]]) -> None:
        """Writes the numbers of each seed with an anomaly."""
        for writer, values in zip(self._each, numbers, strict=True):
            if values:
                writer.write(step, "anomaly", values)

    def has(self, step: int, split: str) -> bool:
        """Returns whether every seed has a line for this step and split."""
        return all(writer.has(step, split) for writer in self._writers.values())

    def flush(self) -> None:
        """Returns once every line is in the folder, also if that is in a bucket."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Closes the files and the trackers."""
        self._bar.close()
        for writer in self._writers.values():
            writer.close()
        self._trackers.close(self.finished)


def count_positions(batch: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Returns a host's sequences per row and the fraction of its positions that count.

    The speed is computed from them. Padding does not count in shared rows.
    """
    if "sequence_ids" not in batch:
        return 1.0, 1.0
    sequences = batch["sequence_ids"].max(axis=-1)  # which are numbered from 1
    return float(sequences.mean()), float(batch["input_mask"].mean())
