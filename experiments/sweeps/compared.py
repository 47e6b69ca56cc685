"""What experiments.sweeps.compare sets side by side; its table, page and picture."""

import math
import statistics
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy import stats

from bert_jax.tasks.results import lower_is_better
from bert_jax.workdir import folder as workdir
from experiments.lib import plots
from experiments.lib.report import Figure, Section, Table
from experiments.lib.verdicts import LEVEL, estimate, interval

_SAME = 1e-6  # scores closer than this are the same but for rounding
DIFFERENCE = ("less row 1", "95% interval", "pairs")
_MOST_LINES = 12  # in the plot of curves: more cannot be told apart
_LABEL, _VALUE = 40, 20  # the most characters of a group's label, and of a value in it


class Run(NamedTuple):
    """A run: its fields, and its lines of one split."""

    folder: Path
    fields: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]

    @property
    def seed(self) -> int:
        """The seed that it was trained with: each restart took the next one."""
        return self.fields["seed"] + workdir.archived_runs(self.folder)


class Group(NamedTuple):
    """Runs that differ by their seed alone.

    Attributes:
      fields: those in which the groups differ, and their values here.
      scores: of each run, in the order of `runs`.
    """

    fields: Mapping[str, Any]
    runs: list[Run]
    scores: list[float]

    @property
    def name(self) -> str:
        pairs = (f"{field}={value}" for field, value in self.fields.items())
        return " ".join(pairs) or "(all alike)"

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def reach(self) -> float:
        """Half of the interval's width; infinite for one run."""
        return estimate(self.scores)[1]


class Difference(NamedTuple):
    """A group's score less another's: the mean and its 95% interval, without bounds
    where the seeds are too few, or all differ by the same.

    Attributes:
      pairs: the seeds that both groups have, if it is over these; else 0.
    """

    mean: float
    low: float
    high: float
    pairs: int


def difference(group: Group, other: Group) -> Difference:
    """Over the seeds that both have, which had the same order of the data; with fewer
    than two of these over all runs, by Welch's t."""
    own, others = (
        {run.seed: score for run, score in zip(each.runs, each.scores, strict=True)}
        for each in (group, other)
    )
    pairs = [own[seed] - others[seed] for seed in own if seed in others]
    if len(pairs) >= 2:
        ends = interval(pairs)
        if max(pairs) - min(pairs) < _SAME:
            ends = (-math.inf, math.inf)
        return Difference(statistics.fmean(pairs), *ends, len(pairs))
    mean, both = group.mean - other.mean, (group.scores, other.scores)
    has_spread = any(max(scores) - min(scores) >= _SAME for scores in both)
    if min(map(len, both)) < 2 or not (has_spread and math.isfinite(mean)):
        return Difference(mean, -math.inf, math.inf, 0)
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):
        # SciPy warns where one group's scores are all equal; Welch's holds there, too.
        ends = stats.ttest_ind(*both, equal_var=False).confidence_interval(LEVEL)
    return Difference(mean, ends.low, ends.high, 0)


def labels(found: Sequence[Group]) -> list[str]:
    """A short name of each group: its own, or, where one is too long, its fields
    by the last part of their names, as many as there is room for."""
    if all(len(group.name) <= _LABEL for group in found):
        return [group.name for group in found]
    fields = list(found[0].fields)
    ends = Counter(field.rpartition(".")[2] for field in fields)
    keys = {f: end if ends[end := f.rpartition(".")[2]] == 1 else f for f in fields}
    return [
        _fitting([f"{keys[f]}={_cut(v)}" for f, v in group.fields.items()])
        for group in found
    ]


def _cut(value: object) -> str:
    """The end of a long text, which tells more of a path; the beginning of others."""
    text = str(value)
    if len(text) <= _VALUE:
        return text
    end = isinstance(value, str)
    return f"...{text[3 - _VALUE :]}" if end else f"{text[: _VALUE - 3]}..."


def _fitting(parts: Sequence[str]) -> str:
    """The first parts that fit in a label, at least one; how many more there are."""
    count, length = 1, len(parts[0])
    while count < len(parts) and length + 1 + len(parts[count]) <= _LABEL:
        length += 1 + len(parts[count])
        count += 1
    more = f" +{len(parts) - count}" if count < len(parts) else ""
    return " ".join(parts[:count]) + more


def sections(found: Sequence[Group], split: str, score: str) -> list[Section]:
    """The table, how to read it, the whole of what it shortens, and two plots."""
    below = [note(score)] if len(found) > 1 else []
    if labels(found) != [group.name for group in found]:
        below += [f"{number}: {group.name}" for number, group in enumerate(found, 1)]
    title, curves = f"{score} on {split}", f"By step: {_CURVES}"
    if len(found) > _MOST_LINES:
        curves += f" The best {_MOST_LINES} of {len(found)}."
    parts: list[str | Table | Figure] = [
        _table(found, f"{split} {score}"),
        *(["\n".join(below)] if below else []),
        Figure(lambda: plots.svg(plots.intervals(_finals(found), title)[0]), _FINAL),
        Figure(lambda: plots.svg(plots.lines([lines(found, score)], 7.5, 4.5)), curves),
    ]
    return [Section("", parts)]


_FINAL = "Strokes: runs; dot and line: their mean and its 95% interval."
_CURVES = "means over seeds; the band reaches from the lowest to the highest."


def png(found: Sequence[Group], split: str, score: str) -> bytes:
    """Both plots, one below the other, for a paper or a message."""
    with plots.drawn(2, 7.5, 3.4, below=True) as (figure, (above, below)):
        plots.draw_intervals(above, _finals(found))
        above.set_xlabel(f"{score} on {split}: runs, mean, 95% interval")
        plots.draw_lines(below, lines(found, score))
    return plots.save(figure)


def _table(found: Sequence[Group], title: str) -> Table:
    rows = []
    for number, (group, name) in enumerate(zip(found, labels(found), strict=True), 1):
        reach = f"± {group.reach:.2g}" if math.isfinite(group.reach) else ""
        row = [str(number), name, f"{group.mean:.4g}", reach, str(len(group.runs))]
        if len(found) > 1:
            row += cells(difference(group, found[0])) if number > 1 else ("", "", "")
        rows.append(row)
    header = ("", "runs", title, "95%", "seeds")
    return Table(rows, header + DIFFERENCE if len(found) > 1 else header)


def note(score: str) -> str:
    """How to read the table."""
    better = "lower" if lower_is_better(score) else "higher"
    return (
        f"the best first ({better} is better); less row 1: how much they differ from "
        "it, over the seeds that both have (pairs), else over all"
    )


def cells(found: Difference) -> tuple[str, str, str]:
    """The mean, the interval and the number of pairs."""
    is_known = math.isfinite(found.low)
    ends = f"{found.low:+.2g} to {found.high:+.2g}" if is_known else ""
    return f"{found.mean:+.3g}", ends, str(found.pairs or "")


def _finals(found: Sequence[Group]) -> dict[str, Sequence[float]]:
    """Every run's score, by the groups' names as in the table."""
    return dict(zip(_numbered(found), (group.scores for group in found), strict=True))


def _numbered(found: Sequence[Group]) -> list[str]:
    """The groups' names in plots: the table's numbers and short names."""
    return [f"{number}  {name}" for number, name in enumerate(labels(found), 1)]


def lines(found: Sequence[Group], score: str) -> plots.Panel:
    """The score by step, of each of the best groups."""
    means, bands = {}, {}
    names = _numbered(found)
    for group, name in list(zip(found, names, strict=True))[:_MOST_LINES]:
        by_step: dict[int, list[float]] = {}
        for run in group.runs:
            for line in run.lines:
                if score in line and math.isfinite(value := float(line[score])):
                    by_step.setdefault(int(line["step"]), []).append(value)
        ordered = sorted(by_step.items())
        means[name] = [(step, sum(each) / len(each), 0.0) for step, each in ordered]
        bands[name] = [(min(each), max(each)) for _, each in ordered]
    return plots.Panel("", "step", score, means, bands=bands)
