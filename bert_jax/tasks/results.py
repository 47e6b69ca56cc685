"""The results on a split: scores, their table, prediction files."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.runtime.storage import Path


def lower_is_better(score: str) -> bool:
    """Whether the smaller of two values of a score, named as reported, is better."""
    # What follows a colon is the name of a class, which may be "loss".
    return ":" not in score and score.endswith(("loss", "perplexity", "entropy"))


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of one seed; the baseline and files are computed on demand.

    Attributes:
      scores: by name; empty if the records have no labels.
    """

    scores: dict[str, float]

    @functools.cached_property
    def baseline(self) -> Mapping[str, float]:
        """The scores of a trivial answer without a model; by default empty."""
        return {}

    def table(
        self, split: str, scores: Mapping[str, float]
    ) -> tuple[list[tuple], tuple]:
        """The rows and header of the closing report.

        Args:
          scores: the means over seeds and, with several seeds, standard deviations.
        """
        baseline = self.baseline
        rows: list[tuple] = []
        for name, value in scores.items():
            row = (name, f"{value:.4g}")
            trivial = f"{baseline[name]:.4g}" if name in baseline else ""
            rows.append((*row, trivial) if baseline else row)
        header = (split, "model", "majority baseline")
        return rows, header if baseline else header[:2]

    def details(self) -> str:
        """What the closing report prints below the table; by default nothing."""
        return ""

    def write(self, folder: Path) -> None:
        """Writes the prediction files, each atomically; by default none."""
        del folder


@dataclasses.dataclass(frozen=True)
class Answered(Results):
    """The results of a fine-tuning task.

    Attributes:
      task: a Finetuning, which has the split's examples.
      answers: one for each example.
    """

    task: Any
    split: str
    answers: Sequence[Any]

    @functools.cached_property
    def baseline(self) -> Mapping[str, float]:
        """The scores of the majority answer."""
        return self.task.baseline(self.split, self.task.examples(self.split))

    def write(self, folder: Path) -> None:
        """Writes the task's prediction files."""
        examples = self.task.examples(self.split)
        self.task.write(folder, self.split, examples, self.answers)
