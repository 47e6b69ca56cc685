"""The results on a split: scores, their table, prediction files."""

import dataclasses
from collections.abc import Callable, Mapping

from bert_jax.runtime.storage import Path

Table = tuple[list[tuple], tuple]  # rows and header


def lower_is_better(score: str) -> bool:
    """Whether the smaller of two values of a score, named as reported, is better."""
    # What follows a colon is the name of a class, which may be "loss".
    return ":" not in score and score.endswith(("loss", "perplexity", "entropy"))


def score_table(
    split: str,
    scores: Mapping[str, float],
    baseline: Mapping[str, float],
    names: Mapping[str, str] | None = None,
) -> Table:
    """Tabulates scores beside a baseline's.

    Args:
      scores: by name; `NAME:CLASS`, the score of one class, is left out.
      names: what to print instead of a score's name.
    """
    rows: list[tuple] = []
    for name, value in scores.items():
        if ":" not in name:
            row = ((names or {}).get(name, name), f"{value:.4g}")
            trivial = f"{baseline[name]:.4g}" if name in baseline else ""
            rows.append((*row, trivial) if baseline else row)
    header = (split, "model", "majority baseline")
    return rows, header if baseline else header[:2]


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of one seed. The closing report calls the functions.

    Attributes:
      scores: by name; empty if the records have no labels.
      baseline: computes the scores of a trivial answer without a model.
      table: takes the split, the scores (the means over seeds and, with several seeds,
        standard deviations) and the baseline's; returns rows and header.
      details: formats what is printed below the table.
      write: writes the prediction files to a folder, each atomically.
    """

    scores: dict[str, float]
    baseline: Callable[[], Mapping[str, float]] = dict
    table: Callable[[str, Mapping[str, float], Mapping[str, float]], Table] = (
        score_table
    )
    details: Callable[[], str] = str
    write: Callable[[Path], object] = str
