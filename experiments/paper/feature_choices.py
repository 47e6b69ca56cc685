"""The layers of BERT whose vectors a feature-based model reads (table 7): the choices,
the results of each one's run, and their table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.commands.intervals import number
from bert_jax.commands.report import Table
from bert_jax.commands.runner import Run
from bert_jax.errors import UserError
from experiments.lib import published

_NOTE = f"""{{score}} in percent, mean +- standard deviation over {{seeds}} restarts
epoch: the one with the best mean on dev, the same for all restarts
* the paper's table 7: BERT-Base on CoNLL-2003's dev set, other data than these;
  fine-tuned {published.TABLE_7.rows["BERT-Base, fine-tuned"]["ner"]}"""


class Choice(NamedTuple):
    """A row of table 7, by the paper's name.

    `first` and `last` are hidden states, 0 the embeddings' output. Negative ones count
    from the end, -1 the last layer's.
    """

    title: str
    first: int
    last: int
    mixes: bool = False  # True means a learned weighted sum, False joined vectors

    @property
    def paper(self) -> float | None:
        """F1 of BERT-Base on CoNLL-2003's dev set, in percent."""
        return published.TABLE_7.rows[self.title]["ner"]

    def states(self, layers: int) -> list[int]:
        """Returns the hidden states that a model of `layers` layers gives it."""
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


def chosen(names: Sequence[str], layers: int) -> tuple[list[str], list[str]]:
    """Returns the choices that are named, and those that a small model cannot have.

    Args:
      names: Names of choices. Empty means all that a model of `layers` layers has.

    Raises:
      UserError: A name is unknown, or the model has too few layers for it.
    """
    if not names:
        fits = [name for name, choice in CHOICES.items() if choice.needs <= layers]
        return fits, [name for name in CHOICES if name not in fits]
    for name in names:
        if name not in CHOICES:
            raise UserError(f"--choices: {name!r} is none of {', '.join(CHOICES)}")
        if CHOICES[name].needs > layers:
            raise UserError(
                f"--choices: {name} needs {CHOICES[name].needs} layers, and the model "
                f"has {layers}; leave it out"
            )
    return [*names], []


def summary(run: Run, score: str) -> dict[str, Any]:
    """Returns the numbers of a choice's run.

    The number of epochs is a hyper-parameter, picked on dev as the paper picks its
    own: by the mean of the restarts, and the same for all of them.

    Args:
      score: Name of the score that is compared.

    Returns:
      `epoch` (from 1), `dev` and `test`, each with `mean`, `std` and `restarts`, as
      fractions of 1, and `epochs`, every epoch's scores.

    Raises:
      UserError: The run's log is cut.
    """
    dev = list(zip(*run.log("dev", [score]).values(), strict=True))
    test = list(zip(*run.log("test", may_lack=True).values(), strict=True))
    logs = {"dev": dev, "test": test} if test else {"dev": dev}
    epochs = [
        {split: [one[score] for one in lines[n]] for split, lines in logs.items()}
        for n in range(len(dev))
    ]
    means = [statistics.fmean(epoch["dev"]) for epoch in epochs]
    # One that is not a number is the worst.
    means = [-math.inf if math.isnan(mean) else mean for mean in means]
    best = means.index(max(means))
    found: dict[str, Any] = {"epoch": best + 1, "epochs": epochs}
    for split, values in epochs[best].items():
        std = statistics.stdev(values) if len(values) > 1 else math.nan
        found[split] = {"mean": statistics.fmean(values), "restarts": values}
        found[split]["std"] = number(std)
    return found


def parts_of_report(results: Mapping[str, Any]) -> list[str | Table]:
    """Formats the choices' scores next to the paper's."""
    rows: list[tuple[object, ...]] = []
    for name, found in results["choices"].items():
        choice = CHOICES[name]
        scores = (_shown(found["dev"]), _shown(found.get("test")))
        rows.append((choice.title, *scores, found["epoch"], f"{choice.paper:.1f}"))
    baseline = {k: _shown({"mean": v}) for k, v in results["baseline"].items()}
    majority = (baseline.get("dev", ""), baseline.get("test", ""))
    rows.append(("majority tag everywhere", *majority, "", ""))
    score = "F1 of entities" if results["score"] == "f1" else results["score"]
    note = _NOTE.format(score=score, seeds=results["command"]["seeds"])
    return [Table(rows, ("BERT's layers", "dev", "test", "epoch", "Base*")), note]


def _shown(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    std = found.get("std")
    spread = "" if std is None else f" +- {100 * std:.2f}"
    return f"{100 * found['mean']:.2f}{spread}"
