"""Scores of each class and the confusion matrix, as text."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from bert_jax.runtime import terminal

Counts = Int[np.ndarray, "classes classes"]


def counts(
    labels: Int[np.ndarray, "n"], guesses: Int[np.ndarray, "n"], classes: int
) -> Counts:
    """Counts the records of each class (rows) that were given each class (columns)."""
    count_matrix = np.zeros((classes, classes), np.int64)
    np.add.at(count_matrix, (labels, guesses), 1)
    return count_matrix


def text(names: Sequence[str], count_matrix: Counts) -> str:
    """Formats precision, recall and F1 of each class, and the confusion matrix.

    Without a guess the precision is 0, as in scikit-learn.
    """
    right, guessed, there = (
        count_matrix.diagonal(),
        count_matrix.sum(axis=0),
        count_matrix.sum(axis=1),
    )
    rows = [
        (
            name,
            f"{right[i] / max(1, guessed[i]):.4f}",
            f"{right[i] / max(1, there[i]):.4f}",
            f"{2 * right[i] / max(1, guessed[i] + there[i]):.4f}",
            str(there[i]),
        )
        for i, name in enumerate(names)
    ]
    scores = terminal.table(rows, ("class", "precision", "recall", "f1", "records"))
    cells = [
        (name, *map(str, row)) for name, row in zip(names, count_matrix, strict=True)
    ]
    matrix = terminal.table(cells, ("true \\ predicted", *names))
    return f"{scores}\n\n{matrix}"
