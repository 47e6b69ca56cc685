"""The layers of BERT whose vectors a feature-based model reads (table 7)."""

from typing import NamedTuple

from bert_jax.errors import UserError

# Table 7: F1 on CoNLL-2003's dev set of BERT-Base fine-tuned, with the same data.
PAPER_FINE_TUNED = 96.4


class Choice(NamedTuple):
    """A row of table 7.

    `first` and `last` are hidden states, 0 the embeddings' output; negative ones count
    from the end, -1 the last layer's.
    """

    title: str
    first: int
    last: int
    mixes: bool  # a learnt weighted sum; otherwise the layers' vectors are joined
    paper: float  # F1 of BERT-Base on CoNLL-2003's dev set, in percent

    def states(self, layers: int) -> list[int]:
        """The hidden states that a model of so many layers gives it."""
        end = layers + 1
        return list(range(self.first % end, self.last % end + 1))

    @property
    def needs(self) -> int:
        """The fewest layers that a model must have."""
        return max(1, -self.first)


CHOICES = {
    "embeddings": Choice("embeddings", 0, 0, False, 91.0),
    "second_to_last": Choice("second-to-last hidden", -2, -2, False, 95.6),
    "last": Choice("last hidden", -1, -1, False, 94.9),
    "sum_last_four": Choice("weighted sum of last four", -4, -1, True, 95.9),
    "concat_last_four": Choice("concatenated last four", -4, -1, False, 96.1),
    # "All 12 Layers": without the embeddings.
    "sum_all": Choice("weighted sum of all layers", 1, -1, True, 95.5),
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
