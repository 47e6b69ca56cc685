"""The layers of BERT whose vectors a feature-based model reads (table 7)."""

from typing import NamedTuple

from bert_jax.errors import UserError
from experiments.lib import published


class Choice(NamedTuple):
    """A row of table 7, by the paper's name.

    `first` and `last` are hidden states, 0 the embeddings' output; negative ones count
    from the end, -1 the last layer's.
    """

    title: str
    first: int
    last: int
    mixes: bool = False  # a learnt weighted sum; otherwise the vectors are joined

    @property
    def paper(self) -> float | None:
        """F1 of BERT-Base on CoNLL-2003's dev set, in percent."""
        return published.TABLE_7.rows[self.title]["ner"]

    def states(self, layers: int) -> list[int]:
        """The hidden states that a model of so many layers gives it."""
        end = layers + 1
        return list(range(self.first % end, self.last % end + 1))

    @property
    def needs(self) -> int:
        """The fewest layers that a model must have."""
        return max(1, -self.first)


CHOICES = {
    "embeddings": Choice("Embeddings", 0, 0),
    "second_to_last": Choice("Second-to-last hidden", -2, -2),
    "last": Choice("Last hidden", -1, -1),
    "sum_last_four": Choice("Weighted sum, last four", -4, -1, mixes=True),
    "concat_last_four": Choice("Concatenated, last four", -4, -1),
    # The paper's "all 12 layers": without the embeddings.
    "sum_all": Choice("Weighted sum, all layers", 1, -1, mixes=True),
}


def chosen(names: str, layers: int) -> tuple[list[str], list[str]]:
    """The choices named between commas, and those that a small model cannot have.

    Args:
      names: empty: all that a model of so many layers has.

    Raises:
      UserError: a name is unknown or repeated, or the model has too few layers for it.
    """
    if not names:
        fits = [name for name, choice in CHOICES.items() if choice.needs <= layers]
        return fits, [name for name in CHOICES if name not in fits]
    found = names.split(",")
    for place, name in enumerate(found):
        if name not in CHOICES:
            raise UserError(f"--choices: {name!r} is none of {', '.join(CHOICES)}")
        if name in found[:place]:
            raise UserError(f"--choices: {name} stands there twice; name it once")
        if CHOICES[name].needs > layers:
            raise UserError(
                f"--choices: {name} needs {CHOICES[name].needs} layers, and the model "
                f"has {layers}; leave it out"
            )
    return found, []
