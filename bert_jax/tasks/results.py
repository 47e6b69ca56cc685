"""What the outputs on a split come to: scores, their table, prediction files."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.runtime.storage import Path


@dataclasses.dataclass(frozen=True)
class Results:
    """Those of one seed; what only the end of a run wants is made when it is asked.

    Attributes:
      scores: by name; none where the records have no labels.
    """

    scores: dict[str, float]

    def baseline(self) -> Mapping[str, float]:
        """The scores of an answer that takes no model, where that means much."""
        return {}

    def table(
        self, split: str, scores: Mapping[str, float]
    ) -> tuple[list[tuple], tuple]:
        """The rows and header of the closing report.

        Args:
          scores: the means of all seeds, and of several their standard deviations.
        """
        baseline = self.baseline()
        rows: list[tuple] = []
        for name, value in scores.items():
            row = (name, f"{value:.4g}")
            common = f"{baseline[name]:.4g}" if name in baseline else ""
            rows.append((*row, common) if baseline else row)
        header = (split, "model", "majority baseline")
        return rows, header if baseline else header[:2]

    def write(self, folder: Path) -> None:
        """Writes the prediction files, each atomically; by default there are none."""
        del folder


@dataclasses.dataclass(frozen=True)
class Answered(Results):
    """Of a fine-tuning task.

    Attributes:
      task: a Finetuning, which knows the split's examples.
      answers: one to each of them.
    """

    task: Any
    split: str
    answers: Sequence[Any]

    def baseline(self) -> Mapping[str, float]:
        """The majority answer's."""
        return self.task.baseline(self.split, self.task.examples(self.split))

    def write(self, folder: Path) -> None:
        """Writes the task's prediction files."""
        examples = self.task.examples(self.split)
        self.task.write(folder, self.split, examples, self.answers)
