"""`--mode=predict` with a fine-tuned model: rows in, answers out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array

from bert_jax.data.rows import Rows
from bert_jax.tasks.task import Ask, Outputs, Predictor


class TaskPredictor(Predictor):
    """Runs rows through a task (see Finetuning) the same way as its evaluation."""

    def __init__(self, task: Any, max_seq_length: int):
        self._task = task
        self._max_seq_length = max_seq_length

    def parse(self, row: dict[str, Any]) -> Any:
        """Parses a row into an example of the task."""
        return self._task.parse(row)

    def step(self, params: Any, batch: Mapping[str, Array]) -> dict[str, Array]:
        """The task's logits."""
        return self._task.outputs(params, batch)

    def answer(
        self, parsed: Sequence[Any], ask: Ask, size: int
    ) -> list[dict[str, Any]]:
        """The task's results."""
        task = self._task
        features = task.encode(parsed, "predict")
        table = Rows(features, task.padding)
        outputs: list[Outputs] = []
        for indices in np.split(np.arange(len(table)), range(size, len(table), size)):
            length = table.length(indices, self._max_seq_length)
            given = ask(table.batch(indices, length))
            rows = range(len(indices))
            outputs += [{k: v[row] for k, v in given.items()} for row in rows]
        answers = task.answers(parsed, features, outputs)
        return [task.result(e, a) for e, a in zip(parsed, answers, strict=True)]
