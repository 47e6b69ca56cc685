"""What feature-based runs amount to: each choice's scores, and the table."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.runtime import terminal
from experiments.paper.feature_choices import CHOICES, PAPER_FINE_TUNED

_PAPER = "Base*"
_NOTE = f"""{{score}} in percent, mean +- standard deviation over {{seeds}} restart{{s}}
epoch: the one with the best mean on dev, the same for all restarts
* the paper's table 7: BERT-Base on CoNLL-2003's dev set, other data than these;
  fine-tuned {PAPER_FINE_TUNED}"""


def kind(setting: Any, splits: Mapping[str, Any]) -> dict[str, Any]:
    """What is noted of an epoch, see `feature_training.Taggers.train`; for `kept`."""
    each = (float,) * len(setting.seeds)
    scored = [name for name, x in splits.items() if name != "train" and x.score]
    noted: dict[str, Any] = dict.fromkeys(["loss", *scored], each)
    if setting.mixes:
        weights = (float,) * len(setting.states)
        noted |= {"weights": (weights,) * len(setting.seeds), "scale": each}
    return noted


def summary(found: Mapping[str, Any], states: Sequence[int]) -> dict[str, Any]:
    """A choice's numbers.

    The number of epochs is a hyper-parameter, picked on dev as the paper picks its
    own: by the mean of the restarts, and the same for all of them.

    Args:
      found: see `feature_training.Taggers.train`.
      states: the hidden states that were read.

    Returns:
      `epoch` (from 1), `dev` and `test` (each with `mean`, `std` and `restarts`, as
      fractions of 1), for a weighted sum `weights` (means over the restarts, by hidden
      state) and `scale`; `epochs`, every epoch's numbers; `seconds`.
    """
    epochs = found["epochs"]
    best = max(range(len(epochs)), key=lambda i: statistics.fmean(epochs[i]["dev"]))
    picked = epochs[best]
    numbers: dict[str, Any] = {"epoch": best + 1}
    for name in ("dev", "test"):
        if name in picked:
            numbers[name] = _spread(picked[name])
    if "weights" in picked:
        means = [
            statistics.fmean(column) for column in zip(*picked["weights"], strict=True)
        ]
        numbers["weights"] = dict(zip(map(str, states), means, strict=True))
        numbers["scale"] = statistics.fmean(picked["scale"])
    return {**numbers, "epochs": epochs, "seconds": found["seconds"]}


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
    mixed = [
        f"{CHOICES[name].title}: {_mix(found)}"
        for name, found in results["choices"].items()
        if "weights" in found
    ]
    if mixed:
        lines = ["learnt weights, by layer (0: the embeddings), and scale", *mixed]
        parts.append("\n".join(lines))
    seeds = results["command"]["seeds"]
    score = "F1 of entities" if results["score"] == "f1" else results["score"]
    note = _NOTE.format(score=score, seeds=seeds, s="" if seeds == 1 else "s")
    return "\n\n".join((*parts, note))


def _mix(found: Mapping[str, Any]) -> str:
    weights = [f"{layer}: {value:.3f}" for layer, value in found["weights"].items()]
    return f"{'  '.join(weights)}  scale {found['scale']:.3f}"


def _spread(values: Sequence[float]) -> dict[str, Any]:
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std, "restarts": list(values)}


def _shown(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    mean = f"{100 * found['mean']:.2f}"
    return mean if found["std"] is None else f"{mean} +- {100 * found['std']:.2f}"
