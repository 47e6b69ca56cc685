"""The report of learning_curves: tables, verdicts and plots."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from experiments.lib import plots, report
from experiments.lib.report import Figure, Section, Table
from experiments.lib.verdicts import Claim, Pair, estimate, judge, shown

FINE, LTR = "fine-tuned", "left to right, fine-tuned"
MEAN, CLS = "features, mean of pieces", "features, [CLS]"
SYSTEMS = (FINE, LTR, MEAN, CLS)
Key: TypeAlias = tuple[str, int, int]  # system, number of examples, draw
# Of each epoch (features: once): step, epoch, and train_ and test_ accuracy and loss.
Series: TypeAlias = list[dict[str, float]]
Found: TypeAlias = Mapping[Key, Series]


def claims(counts: Sequence[int], systems: Sequence[str]) -> list[Claim]:
    """What the paper says of other tasks, asked of each number of examples."""
    others = [name for name in (MEAN, CLS) if name in systems]
    found = [
        Claim(
            "Fine-tuning is better than a classifier on frozen vectors",
            "table 7, on named entities with a BiLSTM on top",
            tuple(Pair(FINE, name, f"{n}") for n in counts for name in others),
        )
    ]
    if LTR in systems:
        pairs = tuple(Pair(FINE, LTR, f"{count}") for count in counts)
        text = "Masked LM is better than left to right"
        found.append(Claim(text, "section 5.1, on other tasks", pairs))
    return found


def write(output: Path, found: Found, facts: Mapping[str, Any], draws: int) -> str:
    """Writes report.md, its plots and results.json; returns the text."""
    counts = sorted({key[1] for key in found})
    systems = [name for name in SYSTEMS if any(key[0] == name for key in found)]
    columns = [f"{count}" for count in counts]
    scores = {
        (name, f"{count}"): {
            draw: 100 * found[name, count, draw][-1]["test_accuracy"]
            for draw in range(draws)
        }
        for name in systems
        for count in counts
    }
    judged = [judge(claim, scores, columns, draws) for claim in claims(counts, systems)]
    rows = [
        (name, *(shown([*scores[name, n].values()]) for n in columns))
        for name in systems
    ]
    header = ("", *(f"{count:,}" for count in counts))
    lines = {
        name: [(n, *estimate([*scores[name, f"{n}"].values()])) for n in counts]
        for name in systems
    }
    title = "Test accuracy after the last epoch"
    panel = plots.Panel(
        *(title, "training examples", "%", lines), ticks=counts, is_log=True
    )
    tuned = [name for name in (FINE, LTR) if name in systems]
    panels = [
        _losses(found, tuned, count) for count in dict.fromkeys((counts[0], counts[-1]))
    ]
    sections = [
        Section("", [report.introduction(facts)]),
        Section("Test accuracy in percent after the last epoch", [
            Table(rows, header, "mean over draws, ± half of the 95% interval"),
            Figure("examples", lambda: plots.lines([panel])),
        ]),
        Section("Claims", [verdict.text for verdict in judged]),
        Section("By epochs: where the test loss (nats) is lowest, and the last epoch", [
            _epochs(found, counts, tuned),
            Figure("epochs", lambda: plots.lines(panels)),
        ]),
    ]  # fmt: skip
    results = {
        **facts,
        "runs": [dict(zip(("system", "examples", "draw"), key, strict=True))
                 | {"epochs": epochs} for key, epochs in found.items()],
        "claims": [verdict.plain() for verdict in judged],
    }  # fmt: skip
    return report.write(output, sections, results)


def _losses(found: Found, systems: Sequence[str], count: int) -> plots.Panel:
    """The losses of test and training set by epoch."""
    curves = {
        f"{side}, {system}": by_epoch(found, system, count, f"{side}_loss")
        for system in systems
        for side in ("test", "train")
    }
    title = f"{count:,} examples"
    return plots.Panel(title, "epochs", "loss (nats)", curves)


def by_epoch(found: Found, system: str, count: int, name: str) -> plots.Points:
    """A number after each epoch: mean over draws, half of the interval."""
    draws = [each for key, each in found.items() if key[:2] == (system, count)]
    points = []
    for lines in zip(*draws, strict=True):
        points.append((lines[0]["epoch"], *estimate([line[name] for line in lines])))
    return points


def _epochs(found: Found, counts: Sequence[int], systems: Sequence[str]) -> Table:
    rows = []
    for system in systems:
        for count in counts:
            test = by_epoch(found, system, count, "test_loss")
            best = min(test, key=lambda point: (math.isnan(point[1]), point[1]))
            at = f"{best[0]:.1f}"
            last = [
                by_epoch(found, system, count, name)[-1][1]
                for name in ("train_loss", "test_accuracy", "train_accuracy")
            ]
            accuracies = (f"{100 * value:.1f}" for value in last[1:])
            begin = (system, f"{count:,}", at, best[1])
            rows.append((*begin, test[-1][1], last[0], *accuracies))
    header = ("", "examples", "lowest at", "loss", "test at the end", "training",
              "test accuracy", "training")  # fmt: skip
    return Table(rows, header)
