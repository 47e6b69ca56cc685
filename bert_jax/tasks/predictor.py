"""`--mode=predict` with a fine-tuned model: rows in, answers out."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from jaxtyping import Array

from bert_jax.data.rows import BatchSize, Feature, sorted_groups
from bert_jax.tasks.task import Outputs, PredictionBatches, Predictor
from bert_jax.types import Arrays


class TaskPredictor(Predictor):
    """Runs rows through a task (see Finetuning) the same way as its evaluation."""

    def __init__(self, task: Any, max_seq_length: int):
        self._task = task
        self._max_seq_length = max_seq_length

    def parse(self, row: dict[str, Any]) -> Any:
        """Parses a row into an example of the task."""
        return self._task.parse(row)

    def step(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """The task's logits."""
        return self._task.outputs(params, batch)

    def encode(self, parsed: Sequence[Any], size: BatchSize) -> PredictionBatches:
        """Encodes the rows as for evaluation."""
        task = self._task
        features = task.encode(parsed, "predict")
        table, windows = task.table(features), _windows(features)
        # Full batches only: `PredictFn` fills up the last one itself.
        limit = self._max_seq_length
        groups = sorted_groups(table.lengths.tolist(), size, limit)
        batches = [table.batch(indices, tokens) for indices, tokens in groups]

        def answers(outputs: Sequence[Outputs]) -> list[dict[str, Any]]:
            by_feature: list[Outputs] = [{} for _ in features]
            for (indices, _), batch_outputs in zip(groups, outputs, strict=True):
                for row, index in enumerate(indices):
                    by_feature[index] = {
                        name: rows[row] for name, rows in batch_outputs.items()
                    }
            each = task.answers(parsed, features, by_feature)
            return [task.result(e, a) for e, a in zip(parsed, each, strict=True)]

        places = [[windows[index] for index in indices] for indices, _ in groups]
        return PredictionBatches(batches, answers, places)


def _windows(features: Sequence[Feature]) -> list[tuple[int, int]]:
    """Each feature's example, and which of that example's features it is."""
    seen: Counter[int] = Counter()
    windows = []
    for feature in features:
        windows.append((feature.example, seen[feature.example]))
        seen[feature.example] += 1
    return windows
