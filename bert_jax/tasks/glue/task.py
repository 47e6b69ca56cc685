"""GLUE (section 4.1): classifies a sentence or a pair; for STS-B predicts a score."""

from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks.classification import Classification, TextExample
from bert_jax.tasks.glue import data

# MNLI's test sets and the diagnostic set are submitted as separate files.
_MNLI_FILES = {"test": "MNLI-m", "test_mismatched": "MNLI-mm", "ax": "AX"}


class Glue(Classification):
    """The task of GLUE that `config.task.name` names.

    `config.task.data_dir` names its data: the folder of its official files,
    "tfds:glue/NAME" or "hf:nyu-mll/glue". `config.task.labels` may reorder the labels.
    """

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        self.glue = data.TASKS[config.task.name]
        kind = "classification" if self.glue.labels else "regression"
        super().__init__(config, tokenizer, kind)
        self.main_score = self.glue.main_score
        if self.glue.labels and not config.task.labels:
            config.task.labels = self.glue.labels
        if self.glue.labels and sorted(self.labels) != sorted(self.glue.labels):
            raise UserError(
                f"config.task.labels={self.labels}: {config.task.name} has "
                f"{', '.join(self.glue.labels)}, in any order"
            )

    @property
    def pairs(self) -> bool:
        return len(self.glue.texts) == 2

    @property
    def score_names(self) -> tuple[str, ...]:
        return self.glue.scores

    def read(self, split: str) -> Sequence[TextExample] | None:
        """The records of a split; see `data.read`.

        MNLI also has the splits dev_mismatched, test_mismatched and ax.
        """
        task = self.config.task
        if not task.data_dir:
            raise UserError(
                "config.task.data_dir is empty: name the folder of "
                f"{self.glue.title}'s files, tfds:glue/{task.name} or hf:nyu-mll/glue"
            )
        records = data.read(task.name, task.data_dir, split, self.labels, self.notices)
        return None if records is None else [TextExample(*x) for x in records]

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[TextExample],
        answers: Sequence[np.ndarray],
    ) -> None:
        """For a test set, the file to submit, such as `MNLI-m.tsv`; otherwise
        `TASK-SPLIT.tsv`. Columns: `index`, `prediction`; submitted scores are 0-5."""
        name = f"{self.config.task.name}-{split}"
        submitted = "dev" not in split and split != "train"
        if submitted:
            name = self.glue.title
            if self.config.task.name == "mnli":
                name = _MNLI_FILES[split]
        lines = ["index\tprediction"]
        for example, answer in zip(examples, answers, strict=True):
            guess = self.guess(answer)
            if isinstance(guess, int):
                prediction = self.labels[guess]
            elif submitted:
                prediction = repr(float(np.clip(guess, 0.0, 5.0)))
            else:
                prediction = repr(guess)
            lines.append(f"{example.id}\t{prediction}")
        write_atomically(folder / f"{name}.tsv", "".join(f"{line}\n" for line in lines))
