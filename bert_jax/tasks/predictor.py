"""`--mode=predict` with a fine-tuned model: rows in, answers out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from bert_jax.data.rows import Batch, Rows

if TYPE_CHECKING:
    from bert_jax.tasks.finetuning import Finetuning

Example = TypeVar("Example")
Answer = TypeVar("Answer")
Outputs = dict[str, np.ndarray]
Ask = Callable[[Batch], Outputs]


class Predictor(Generic[Example, Answer]):
    """Rows through a task, the same way as its evaluation."""

    def __init__(self, task: Finetuning[Example, Answer], max_seq_length: int):
        self._task = task
        self._max_seq_length = max_seq_length
        self.parse = task.parse
        self.step = task.outputs

    def answer(
        self, examples: Sequence[Example], ask: Ask, size: int
    ) -> list[dict[str, Any]]:
        """What is added to each row.

        Args:
          ask: runs `step` on up to `size` rows.
        """
        task = self._task
        features = task.encode(examples, "predict")
        table = Rows(features, task.padding)
        outputs: list[Outputs] = []
        for indices in np.split(np.arange(len(table)), range(size, len(table), size)):
            given = ask(
                table.batch(indices, table.length(indices, self._max_seq_length))
            )
            outputs += [
                {k: v[i] for k, v in given.items()} for i in range(len(indices))
            ]
        answers = task.answers(examples, features, outputs)
        return [task.result(e, a) for e, a in zip(examples, answers, strict=True)]
