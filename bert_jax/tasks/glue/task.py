"""GLUE (section 4.1): classification of sentences or pairs, for STS-B a score."""

from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks.finetuning import Answers
from bert_jax.tasks.glue import data
from bert_jax.tasks.text import Text

# MNLI's test sets and the diagnostic set are submitted as separate files.
_MNLI_FILES = {"test": "MNLI-m", "test_mismatched": "MNLI-mm", "ax": "AX"}


class Glue(Text):
    """The task of GLUE that `config.task.name` names: a row of `data.TASKS`.

    `config.task.data_dir` names its data: the folder of its official files,
    "tfds:glue/NAME" or "hf:nyu-mll/glue". `config.task.labels` may reorder the labels.
    """

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        self.glue = data.TASKS[config.task.name]
        super().__init__(config, tokenizer)
        self.main_score = self.glue.main_score
        if self.glue.labels and not self.labels:
            self.fill_in({"task.labels": self.glue.labels})
        if self.glue.labels and sorted(self.labels) != sorted(self.glue.labels):
            raise UserError(
                f"config.task.labels={self.labels}: {config.task.name} has "
                f"{', '.join(self.glue.labels)}, in any order"
            )

    @property
    def kind(self) -> str:
        return "classification" if self.glue.labels else "regression"

    @property
    def pairs(self) -> bool:
        return len(self.glue.texts) == 2

    @property
    def score_names(self) -> tuple[str, ...]:
        return self.glue.scores

    def load(self, split: str) -> list[Row] | None:
        """Returns the rows of a split, see `data.read_texts`.

        MNLI also has the splits dev_mismatched, test_mismatched and ax.
        """
        options = self.options
        if not options.data_dir:
            raise UserError(
                "config.task.data_dir is empty: name the folder of the files of "
                f"{self.glue.title}, tfds:glue/{options.name} or hf:nyu-mll/glue"
            )
        return data.read_split(options.name, options.data_dir, split, self.notices)

    def write_predictions(
        self, folder: Path, split: str, examples: Sequence[Row], answers: Answers
    ) -> None:
        """Writes a test set's file to submit, such as `MNLI-m.tsv`, or otherwise
        `TASK-SPLIT.tsv`. Columns: `index`, `prediction`. Submitted scores are 0-5."""
        name = f"{self.options.name}-{split}"
        submitted = "dev" not in split and split != "train"
        if submitted:
            is_mnli = self.options.name == "mnli"
            name = _MNLI_FILES[split] if is_mnli else self.glue.title
        lines = ["index\tprediction"]
        for example, answer in zip(examples, answers, strict=True):
            guess = self.guess(answer)
            if isinstance(guess, int):
                prediction = self.labels[guess]
            elif submitted:
                prediction = repr(float(np.clip(guess, 0.0, 5.0)))
            else:
                prediction = repr(guess)
            lines.append(f"{example['id']}\t{prediction}")
        write_atomically(folder / f"{name}.tsv", "".join(f"{line}\n" for line in lines))
