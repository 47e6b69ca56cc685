"""The config of learning_curves' runs: losses of training and test set by epoch.

    python -m bert_jax.main --config=experiments/claims/both_losses.py:size=base \
        --config.task.train_file=train.jsonl --config.task.dev_file=test.jsonl \
        --config.task.dev_train_file=train.jsonl --config.init_from=FOLDER

Texts as in configs/finetune/text.py, with the length, the truncation, the batch and the
rate of imdb.py. After each epoch `dev` has the scores of the test set and `dev_train`
those of the training set, both without dropout and with the loss.
"""

from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict
from scipy import special

from bert_jax.data.tables import Row
from bert_jax.tasks import TASKS
from bert_jax.tasks.text import Text
from configs.finetune import imdb, text

NAME = "text_with_losses"


class TextWithLosses(Text):
    """Texts, scored by `cross_entropy` too: in nats, of the right class."""

    def scores(
        self, split: str, examples: Sequence[Row], answers: Sequence[np.ndarray]
    ) -> dict[str, float]:
        found = super().scores(split, examples, answers)
        if not found:
            return {}
        logits = np.asarray(answers, np.float64)
        labels = np.array([example["label"] for example in examples])
        shares = special.log_softmax(logits, axis=1)[np.arange(len(labels)), labels]
        return {**found, "cross_entropy": -float(shares.mean())}

    def baseline_scores(self, split: str, examples: Sequence[Row]) -> dict[str, float]:
        """Scores the majority without the loss: its answer has no probability."""
        found = super().baseline_scores(split, examples)
        return {k: v for k, v in found.items() if k != "cross_entropy"}


def get_config(size: str = "base") -> ConfigDict:
    """Returns the config of a run with both losses.

    Args:
      size: Model size, tiny or one of configs/base.py.
    """
    TASKS[NAME] = TextWithLosses
    config, reviews = text.get_config(size), imdb.get_config(size)
    config.task.name = NAME
    config.task.dev_train_file = ""  # the training file again
    for field in ("max_seq_length", "truncation"):
        config.task[field] = reviews.task[field]
    config.train.batch_size = reviews.train.batch_size
    config.optimizer.learning_rate = reviews.optimizer.learning_rate
    config.evaluate.splits = ("dev", "dev_train")
    return config
