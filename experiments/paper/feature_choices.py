"""The layers of BERT whose vectors a feature-based model reads (table 7): which choices
there are, what the run of each amounts to, and their table."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.runtime import terminal
from experiments.lib import kept, published
from experiments.lib.runs import Run
from experiments.paper.glue_table import order

_PAPER = "Base*"
_NOTE = f"""{{score}} in percent, mean +- standard deviation over {{seeds}} restart{{s}}
epoch: the one with the best mean on dev, the same for all restarts
* the paper's table 7: BERT-Base on CoNLL-2003's dev set, other data than these;
  fine-tuned {published.TABLE_7.rows["BERT-Base, fine-tuned"]["ner"]}"""


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


def chosen(names: Sequence[str], layers: int) -> tuple[list[str], list[str]]:
    """The choices that are named, and those that a small model cannot have.

    Args:
      names: empty: all that a model of so many layers has.

    Raises:
      UserError: a name is unknown, or the model has too few layers for it.
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
    """The numbers of a choice's run.

    The number of epochs is a hyper-parameter, picked on dev as the paper picks its
    own: by the mean of the restarts, and the same for all of them.

    Args:
      score: the name of the one that is compared.

    Returns:
      `epoch` (from 1), `dev` and `test` (each with `mean`, `std` and `restarts`, as
      fractions of 1), for a weighted sum `weights` (means over the restarts, by hidden
      state) and `scale`; `epochs`, every epoch's scores; `seconds`.

    Raises:
      UserError: the run's files are damaged.
    """
    log: dict[str, list[tuple[Mapping[str, float], ...]]] = {}
    for split in ("dev", "test"):
        each = run.log(split, [score], may_lack=split == "test").values()
        if lines := list(zip(*each, strict=False)):
            log[split] = lines
    dev = log["dev"]
    epochs = [
        {split: [one[score] for one in lines[n]] for split, lines in log.items()}
        for n in range(len(dev))
    ]
    best = max(
        range(len(epochs)), key=lambda n: order(statistics.fmean(epochs[n]["dev"]))
    )
    numbers: dict[str, Any] = {"epoch": best + 1}
    numbers |= {split: _spread(scores) for split, scores in epochs[best].items()}
    learnt = {
        name: statistics.fmean(one[name] for one in dev[best])
        for name in dev[best][0]
        if name == "scale" or name.startswith("weight_")
    }
    if learnt:
        numbers["scale"] = learnt.pop("scale")
        weights = {name.partition("_")[2]: value for name, value in learnt.items()}
        numbers["weights"] = weights
    seconds = kept.read(run.result, {"seconds": float})["seconds"]
    return {**numbers, "epochs": epochs, "seconds": seconds}


def table(results: Mapping[str, Any]) -> str:
    """The choices' scores beside the paper's, and the sums' weights."""
    rows: list[tuple[object, ...]] = []
    for name, found in results["choices"].items():
        choice = CHOICES[name]
        scores = (_shown(found["dev"]), _shown(found.get("test")))
        rest = (found["epoch"], f"{choice.paper:.1f}", f"{found['seconds']:.0f}")
        rows.append((choice.title, *scores, *rest))
    baseline = results["baseline"]
    shown = [
        f"{100 * baseline[name]:.2f}" if name in baseline else ""
        for name in ("dev", "test")
    ]
    rows.append(("majority tag everywhere", *shown, "", "", ""))
    header = ("BERT's layers", "dev", "test", "epoch", _PAPER, "seconds")
    parts = [terminal.table(rows, header)]
    mixed = []
    for name, found in results["choices"].items():
        each = [f"{at}: {value:.3f}" for at, value in found.get("weights", {}).items()]
        if each:
            each.append(f"scale {found['scale']:.3f}")
            mixed.append(f"{CHOICES[name].title}: {'  '.join(each)}")
    if mixed:
        lines = ["learnt weights, by layer (0: the embeddings), and scale", *mixed]
        parts.append("\n".join(lines))
    seeds = results["command"]["seeds"]
    score = "F1 of entities" if results["score"] == "f1" else results["score"]
    note = _NOTE.format(score=score, seeds=seeds, s="" if seeds == 1 else "s")
    return "\n\n".join((*parts, note))


def _spread(values: Sequence[float]) -> dict[str, Any]:
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std, "restarts": list(values)}


def _shown(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    mean = f"{100 * found['mean']:.2f}"
    return mean if found["std"] is None else f"{mean} +- {100 * found['std']:.2f}"
