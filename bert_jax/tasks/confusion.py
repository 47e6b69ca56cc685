"""What a classifier confuses: scores of each class and the confusion matrix."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from jaxtyping import Int

from bert_jax.data.texts import sorted_labels
from bert_jax.runtime import terminal
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks import mistakes
from bert_jax.tasks.results import Answered

_MOST = 20  # classes that the report shows
_CELL, _MARGIN, _NAME = 56, 14, 18  # pixels; letters of a name that is drawn
Counts = Int[np.ndarray, "classes classes"]


class Classified(Answered):
    """Answers that are classes; also written as tables and as a picture."""

    def table(
        self, split: str, scores: Mapping[str, float]
    ) -> tuple[list[tuple], tuple]:
        """Names the class or classes of F1. Those of each class are in `details`."""
        few = {name: x for name, x in scores.items() if not name.startswith("f1:")}
        rows, header = super().table(split, few)
        kind, names = self.task.kind, sorted_labels(set(self.task.labels))
        of = f"f1 of {names[-1]}" if kind == "classification" else "f1, micro"
        return [(of if row[0] == "f1" else row[0], *row[1:]) for row in rows], header

    def details(self) -> str:
        """Each class's precision, recall and F1, and the confusion matrix, unless these
        are more classes than fit on a screen; and the surest mistakes. Empty without
        labels."""
        count_matrix = self._counts()
        if count_matrix is None:
            return ""
        parts = (
            [text(self.task.labels, count_matrix)] if len(count_matrix) <= _MOST else []
        )
        return "\n\n".join(filter(None, [*parts, self._mistakes()]))

    def _mistakes(self) -> str:
        examples = self.task.examples(self.split)
        texts = [" / ".join(filter(None, (x.text, x.text_b))) for x in examples]
        labels = np.array([example.label for example in examples])
        wrong = mistakes.surest(np.stack(self.answers), labels)
        file = f"predictions/{self.split}.jsonl"
        return mistakes.table(wrong, self.task.labels, texts, file)

    def write(self, folder: Path) -> None:
        """Also `SPLIT_classes.txt` and `SPLIT_confusion.svg` if labels are known."""
        super().write(folder)
        if (count_matrix := self._counts()) is not None:
            names = self.task.labels
            tables = text(names, count_matrix) + "\n"
            write_atomically(folder / f"{self.split}_classes.txt", tables)
            picture = svg(names, count_matrix, self.split)
            write_atomically(folder / f"{self.split}_confusion.svg", picture)

    def _counts(self) -> Counts | None:
        if self.task.kind != "classification" or not self.scores:
            return None
        labels = [example.label for example in self.task.examples(self.split)]
        guesses = [self.task.guess(answer) for answer in self.answers]
        return counts(np.array(labels), np.array(guesses), len(self.task.labels))


def counts(
    labels: Int[np.ndarray, "n"], guesses: Int[np.ndarray, "n"], classes: int
) -> Counts:
    """How many records of each class (rows) were given which (columns)."""
    count_matrix = np.zeros((classes, classes), np.int64)
    np.add.at(count_matrix, (labels, guesses), 1)
    return count_matrix


def text(names: Sequence[str], count_matrix: Counts) -> str:
    """The two tables. Without a guess the precision is 0, as in scikit-learn."""
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


def svg(names: Sequence[str], count_matrix: Counts, split: str) -> str:
    """The matrix as a picture: a cell is as dark as its share of its row."""
    left = _MARGIN + 9 * max(len(_short(name)) for name in names) + 24
    size = _CELL * len(names)
    width, height = left + size + _MARGIN, left + size + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="14">',
        f"<title>{escape(split)}: true classes (rows), predicted (columns)</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, name in enumerate(names):
        middle = left + _CELL * i + _CELL // 2
        shown = escape(_short(name))
        parts += [
            f'<text x="{left - 8}" y="{middle + 5}" text-anchor="end">{shown}</text>',
            f'<text transform="translate({middle + 5} {left - 8}) rotate(-90)">'
            f"{shown}</text>",
        ]
        shares = count_matrix[i] / max(1, count_matrix[i].sum())
        for j, share in enumerate(shares):
            grey, x = round(255 * (1 - share)), left + _CELL * j
            ink = "white" if grey < 128 else "black"
            parts += [
                f'<rect x="{x}" y="{middle - _CELL // 2}" width="{_CELL}" '
                f'height="{_CELL}" fill="rgb({grey},{grey},{grey})" stroke="#999"/>',
                f'<text x="{x + _CELL // 2}" y="{middle + 5}" text-anchor="middle" '
                f'fill="{ink}">{count_matrix[i, j]}</text>',
            ]
    parts += [
        f'<text x="{_MARGIN}" y="{_MARGIN + 10}">true \\ predicted</text>',
        "</svg>\n",
    ]
    return "\n".join(parts)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"
