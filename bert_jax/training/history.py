"""The scores of a run so far: the best one, and whether it learned anything."""

import math
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
from bert_jax.training.anomaly import DECAY
from bert_jax.workdir import metrics

# A run whose loss has fallen by less than this fraction has not learned.
FLAT = 0.05


class BestScore:
    """The quality of each evaluation, including those before a resume.

    Losses at different sequence lengths are not comparable: when the schedule changes
    the shape of batches (apart from their number of rows), earlier evaluations are
    dropped, so the best is the best of the current phase.
    """

    def __init__(self, task: Task, folder: Path, split: tuple[str, ...]):
        self._task = task
        self._seen: list[tuple[int, float]] = []  # step, quality
        for name in split:
            for line in metrics.read(folder, name):
                self.add(int(line["step"]), line)

    def add(self, now: int, numbers: Mapping[str, int | float]) -> bool:
        """Adds the scores after `now` steps; returns whether they are the best."""
        if self._seen and self._shape(now) != self._shape(self._seen[-1][0]):
            self._seen = []
        value = self._task.quality(numbers)
        # A comparison with NaN is always false: it would stay the best for good.
        value = -math.inf if math.isnan(value) else value
        best = all(value > other for _, other in self._seen)
        self._seen.append((now, value))
        return best

    def stops(self, patience: int) -> bool:
        """Whether none of the last `patience` evaluations beat the best before them;
        always False if `patience` is 0."""
        if not patience or len(self._seen) <= patience:
            return False
        values = [value for _, value in self._seen]
        return max(values[-patience:]) <= max(values[:-patience])

    def early_stop(self, now: int, taken: int) -> str:
        """A line that says why a run ended at step `now`, and which weights it uses.

        Args:
          taken: the step of these weights.
        """
        best, _ = max(self._seen, key=lambda seen: seen[1])
        since = sum(step > best for step, _ in self._seen)
        return (
            f"early stop at step {now}: {since} evaluations no better than step "
            f"{best}'s; the result is that of step {taken}"
        )

    def _shape(self, now: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the last step's batch, without the number of rows."""
        shapes = self._task.phase_at(now - 1).shapes
        return {name: shape[1:] for name, shape in shapes.items()}


def require_dev(task: Task) -> None:
    """Reads the evaluation data, before a run claims its folder.

    Raises:
      UserError: a file is missing or wrong; a field needs scores on dev, and there are
        none.
    """
    config = task.config
    needs = {
        f"train.early_stop={config.train.early_stop}": config.train.early_stop,
        f"evaluate.score={config.evaluate.score}": config.evaluate.score,
        "evaluate.checkpoint=best": config.evaluate.checkpoint == "best",
    }
    dev = task.dev_splits  # reads the files
    for field, is_set in needs.items():
        if is_set and not dev:
            raise UserError(
                f"config.{field}: needs scores on dev, and there are none; name dev "
                "data, and dev in config.evaluate.splits"
            )


def warn_if_collapsed(task: Task, folder: Path, baseline: Mapping[str, float]) -> None:
    """Prints a warning if a finished run has learned nothing.

    That is: its last score is no better than the majority baseline's, and its loss has
    hardly fallen. This happens to some seeds on small data sets (section 4.1).

    Args:
      baseline: the baseline's scores on the first dev split; without the score that
        selects the best checkpoint there is no warning.
    """
    losses = _mean_losses(metrics.read(folder, "train"))
    dev = [line for s in task.dev_splits[:1] for line in metrics.read(folder, s)]
    quarter = max(1, len(losses) // 4)
    name = task.selection_score
    floor = baseline.get(name)
    if not dev or len(losses) < 2 or floor is None or dev[-1][name] > floor:
        return
    if np.mean(losses[-quarter:]) >= (1 - FLAT) * np.mean(losses[:quarter]):
        print(
            f"\nCOLLAPSED: {folder} has learned nothing: its score on "
            f"{task.dev_splits[0]} is no better than the majority baseline's, and its "
            "loss is flat (docs/faq.md)",
            file=sys.stderr,
        )


def _mean_losses(lines: Sequence[Mapping[str, int | float]]) -> list[float]:
    """The mean loss of the steps since the line before, later steps weighing a little
    more: single batches differ by more than `FLAT`.

    `usual_loss` is DECAY's running mean over the steps before a line's, corrected for
    its start at 0; what the line before has of it is taken out.
    """
    losses, before, known = [], 0, 0.0
    for line in lines:
        steps = int(line["step"]) - 1
        if steps > before and "usual_loss" in line:
            total = line["usual_loss"] * (1 - DECAY**steps)
            kept = DECAY ** (steps - before)
            losses.append((total - kept * known) / (1 - kept))
            before, known = steps, total
    return losses
