"""How a run has gone so far: its best score, its speed, whether it learnt anything."""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.runtime import processes
from bert_jax.runtime.clock import Stopwatch
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
from bert_jax.workdir import metrics

# A run whose loss has fallen by less than this share has not learnt.
FLAT = 0.05


class BestScore:
    """The quality of each evaluation, those of a run that is resumed included.

    Losses at two sequence lengths do not compare: where the schedule comes to batches
    of another shape (their number of rows aside), what went before is forgotten, so
    that the best is that of the last such stretch.
    """

    def __init__(self, task: Task, folder: Path, split: tuple[str, ...]):
        self._task = task
        self._seen: list[tuple[int, float]] = []  # step, quality
        for name in split:
            for line in metrics.read(folder, name):
                self.add(int(line["step"]), line)

    def add(self, now: int, numbers: Mapping[str, int | float]) -> bool:
        """Whether these, after `now` steps, are the best that is not forgotten."""
        if self._seen and self._shape(now) != self._shape(self._seen[-1][0]):
            self._seen = []
        value = self._task.quality(numbers)
        best = all(value > other for _, other in self._seen)
        self._seen.append((now, value))
        return best

    def stops(self, patience: int) -> bool:
        """Whether the last `patience` evaluations were all no better than one before
        them; with a patience of 0, never."""
        if not patience or len(self._seen) <= patience:
            return False
        values = [value for _, value in self._seen]
        return max(values[-patience:]) <= max(values[:-patience])

    def early_stop(self, now: int, taken: int, kept: bool) -> str:
        """A line that says why a run ended at step `now`, and which weights it gives.

        Args:
          taken: the step of these.
          kept: the best is in the folder too.
        """
        best, _ = max(self._seen, key=lambda seen: seen[1])
        since = sum(step > best for step, _ in self._seen)
        told = (
            f"early stop at step {now}: {since} evaluations no better than step "
            f"{best}'s; the result is that of step {taken}"
        )
        if taken == best:
            return told
        how = "takes" if kept else "from the beginning keeps and takes"
        return f"{told} (--config.evaluate.checkpoint=best {how} step {best}'s)"

    def _shape(self, now: int) -> dict[str, tuple[int, ...]]:
        """That of the batch of the last step that was taken."""
        shapes = self._task.phase_at(now - 1).shapes
        return {name: shape[1:] for name, shape in shapes.items()}


class Speed:
    """Measures steps and waiting for data, nothing else."""

    def __init__(self, clock: Stopwatch):
        self._clock = clock
        self._seconds = 0.0
        self._done = np.zeros(3)

    def add(self, task: Task, batch: Mapping[str, Any], seeds: int) -> None:
        """A step was taken on a batch, [batch, ...] or [seeds, batch, ...]."""
        shapes = {name: rows.shape for name, rows in batch.items()}
        if seeds > 1:
            shapes = {name: shape[1:] for name, shape in shapes.items()}
        ids = shapes["input_ids"]
        self._done += seeds * np.array([ids[0], math.prod(ids), task.flops(shapes)])

    def rates(self, peak_flops: float | None) -> dict[str, float]:
        """Speed since the last call.

        `tokens_per_second` counts positions, padding included; `mfu` is the share of
        the devices' bfloat16 peak, where it is known.
        """
        totals = self._clock.totals()
        seconds = totals["step"] + totals["data wait"]
        sequences, positions, flops = (
            float(done) / (seconds - self._seconds) for done in self._done
        )
        self._seconds, self._done = seconds, np.zeros(3)
        rates = {"sequences_per_second": sequences, "tokens_per_second": positions}
        return rates if peak_flops is None else {**rates, "mfu": flops / peak_flops}


def collapsed(task: Task, folder: Path, baseline: Mapping[str, float]) -> bool:
    """Whether a finished run has learnt nothing, which it says aloud.

    That is: its last score is no better than the majority baseline's, and its loss has
    hardly fallen. It befalls some seeds on small data sets (section 4.1).

    Args:
      baseline: the scores on the first dev split of an answer that takes no model;
        without the main one nothing is said.
    """
    losses = [line["loss"] for line in metrics.read(folder, "train")]
    dev = [line for s in task.dev_splits[:1] for line in metrics.read(folder, s)]
    quarter = len(losses) // 4
    floor = baseline.get(task.main_score)
    if not dev or not quarter or floor is None or dev[-1][task.main_score] > floor:
        return False
    if np.mean(losses[-quarter:]) < (1 - FLAT) * np.mean(losses[:quarter]):
        return False
    if not processes.is_first():
        return True
    print(
        f"\nCOLLAPSED: {folder} has learnt nothing: its score on "
        f"{task.dev_splits[0]} is that of the majority baseline, and its loss is flat. "
        "Take another seed (or "
        "--config.train.restarts=3), a lower learning rate, more epochs, or "
        "--config.optimizer.name=adamw",
        file=sys.stderr,
    )
    return True
