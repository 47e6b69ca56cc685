"""GLUE (section 4.1): classification of sentences or pairs, for STS-B a score."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.tasks.definition import Answers
from bert_jax.tasks.glue import data
from bert_jax.tasks.text import Text

# MNLI's test sets and the diagnostic set are submitted as separate files.
_MNLI_FILES = {"test": "MNLI-m", "test_mismatched": "MNLI-mm", "ax": "AX"}


class Glue(Text):
    """The task of GLUE that `config.task.name` names: a row of `data.TASKS`.

    `config.task.data_dir` names its data: the folder of its official files,
    "tfds:glue/NAME" or "hf:nyu-mll/glue". `config.task.labels` may reorder the labels.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        own = self.glue.labels
        if own and self.labels and sorted(self.labels) != sorted(own):
            raise UserError(
                f"config.task.labels={self.labels}: {self.options.name} has "
                f"{', '.join(own)}, in any order"
            )

    @property
    def glue(self) -> data.GlueTask:
        """The row of `data.TASKS`."""
        return data.TASKS[self.options.name]

    @property
    def main_score(self) -> str:
        return self.glue.main_score

    @property
    def kind(self) -> str:
        return "classification" if self.glue.labels else "regression"

    @property
    def pairs(self) -> bool:
        return len(self.glue.texts) == 2

    @property
    def score_names(self) -> tuple[str, ...]:
        return self.glue.scores

    def infer_fields(self) -> dict[str, Any]:
        labels = self.glue.labels or ("score",)
        return {} if self.labels else {"task.labels": labels}

    def read_rows(self, split: str) -> list[Row] | None:
        """Returns the rows of a split, see `data.read_texts`.

        MNLI also has the splits dev_mismatched, test_mismatched and ax.
        """
        options = self.options
        if not options.data_dir:
            raise UserError(
                "config.task.data_dir is empty: name the folder of the files of "
                f"{self.glue.title}, tfds:glue/{options.name} or hf:nyu-mll/glue"
            )
        return data.read_split(options.name, options.data_dir, split, self.text.notices)

    def prediction_files(
        self, split: str, rows: Sequence[Row], answers: Answers
    ) -> dict[str, str]:
        """Returns a test set's file to submit, such as `MNLI-m.tsv`, or otherwise
        `TASK-SPLIT.tsv`. Columns: `index`, `prediction`. Submitted scores are 0-5."""
        name = f"{self.options.name}-{split}"
        submitted = "dev" not in split and split != "train"
        if submitted:
            is_mnli = self.options.name == "mnli"
            name = _MNLI_FILES[split] if is_mnli else self.glue.title
        lines = ["index\tprediction"]
        for row, answer in zip(rows, answers, strict=True):
            guess = self.guess(answer)
            if isinstance(guess, int):
                prediction = self.labels[guess]
            elif submitted:
                prediction = repr(float(np.clip(guess, 0.0, 5.0)))
            else:
                prediction = repr(guess)
            lines.append(f"{row['id']}\t{prediction}")
        return {f"{name}.tsv": "".join(f"{line}\n" for line in lines)}
