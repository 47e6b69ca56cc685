"""The mistakes of which a classifier was surest, with their texts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bert_jax.runtime import terminal
from bert_jax.scores.probabilities import softmax

SHOWN = 10
_LETTERS = 70  # of a text, in the table


class Mistake(NamedTuple):
    """A record whose class was not the one guessed."""

    record: int
    probability: float  # of the guess
    guess: int
    label: int


def surest(
    logits: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, "n"]
) -> list[Mistake]:
    """All mistakes, the surest first; equally sure ones in the records' order."""
    shares = [softmax(row) for row in logits.astype(np.float64)]
    wrong = [
        Mistake(index, float(share.max()), int(share.argmax()), int(label))
        for index, (share, label) in enumerate(zip(shares, labels, strict=True))
        if share.argmax() != label
    ]
    return sorted(wrong, key=lambda mistake: -mistake.probability)


def table(
    wrong: Sequence[Mistake], names: Sequence[str], texts: Sequence[str], file: str
) -> str:
    """The first SHOWN of `surest`, a line each; empty without mistakes.

    Args:
      names: of the classes.
      texts: of all records.
      file: that has every record's answer.
    """
    if not wrong:
        return ""
    rows = [
        (f"{x.probability:.3f}", names[x.guess], names[x.label], _line(texts[x.record]))
        for x in wrong[:SHOWN]
    ]
    said = f"mistakes, the surest first ({len(rows)} of {len(wrong)}; all: {file})"
    header = ("probability", "predicted", "true", "text")
    return f"{said}\n\n{terminal.table(rows, header)}"


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}…"
