"""Verdicts on whether the scores bear out a claim of the paper: paired over seeds.

A claim is a list of comparisons, each of two systems on one column. Seed by seed their
scores are subtracted: the same seed has the same order of the training data and the
same new classifier. Student's t gives the 95% interval of the mean difference.

    better than   reproduced: the interval is above 0
                  contradicted: the interval, at 1 - 0.05 / (number of comparisons), is
                  below 0
    alike         reproduced: the interval is within the margin
                  contradicted: as above, beyond the margin
    else          undecided

A claim is reproduced where all its comparisons are, contradicted where one is, else
undecided. One is enough for the second, so it has Bonferroni's correction. One seed
decides nothing, nor do seeds that all differ by the same, nor fewer seeds than were
requested: those that failed, or are still to run, may be the others.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.commands.intervals import LEVEL, estimate, interval, number

REPRODUCED, CONTRADICTED, UNDECIDED = "reproduced", "contradicted", "undecided"
# Points. Differences closer than these are the same but for rounding. One example more
# or less is 0.01 points on the largest dev set, MNLI's.
_SAME = 1e-4
# Scores of a system and a column, in points, by seed.
Scores = Mapping[tuple[str, str], Mapping[int, float]]


class Pair(NamedTuple):
    """Two systems and the column to compare them on.

    `first` is better, by the claim, or, in a claim with a margin, as good.
    """

    first: str
    second: str
    column: str


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
      text: Text as the paper argues it.
      source: Section of the paper.
      pairs: Systems and columns to compare.
      margin: Points by which the systems differ less. 0 means the first is better.
    """

    text: str
    source: str
    pairs: tuple[Pair, ...]
    margin: float = 0.0


class Part(NamedTuple):
    """A comparison that was made: its differences, first less second, in points."""

    pair: Pair
    differences: tuple[float, ...]
    mean: float
    low: float
    high: float
    word: str
    why: str

    @property
    def line(self) -> str:
        """The comparison in words."""
        said = f"{self.pair.column}: {self.pair.first} less {self.pair.second}"
        if not self.differences:
            return f"{said}: {self.why}"
        said += f" {self.mean:+.2f}"
        if math.isfinite(self.low):
            said += f" [{self.low:+.2f}, {self.high:+.2f}]"
        return f"{said}: {self.word}" + (f" ({self.why})" if self.why else "")

    def plain(self) -> dict[str, Any]:
        """Returns the part as JSON has it, with null where a value is not finite."""
        return {
            **self.pair._asdict(),
            "differences": [*map(number, self.differences)],
            "mean": number(self.mean),
            **{"low": number(self.low), "high": number(self.high)},
            **{"verdict": self.word, "why": self.why},
        }


class Verdict(NamedTuple):
    claim: Claim
    word: str
    why: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Returns the claim, its verdict, and each comparison in a line."""
        lines = (self.why, *(part.line for part in self.parts))
        head = f"{self.word.upper()}: {self.claim.text} ({self.claim.source})"
        return "\n  ".join((head, *lines))

    def plain(self) -> dict[str, Any]:
        """Returns the verdict as JSON has it."""
        return {
            "claim": self.claim.text,
            "source": self.claim.source,
            "margin": self.claim.margin,
            "verdict": self.word,
            "why": self.why,
            "comparisons": [part.plain() for part in self.parts],
        }


def shown(values: Sequence[float]) -> str:
    """Formats both as text, or only the mean where the interval has no bounds."""
    mean, reach = estimate(values)
    said = f"{mean:.1f}" if values else "-"
    return f"{said} ± {reach:.1f}" if math.isfinite(reach) else said


def judge(claim: Claim, scores: Scores, columns: Sequence[str], seeds: int) -> Verdict:
    """Returns the verdict on a claim.

    Args:
      scores: Scores of the runs that have ended. A pair without scores is undecided.
      columns: Columns that were requested. The claim's others are left out, and named.
      seeds: Number of seeds that were requested. A pair with fewer is undecided.
    """
    asked = [pair for pair in claim.pairs if pair.column in columns]
    parts = tuple(
        _part(pair, claim.margin, scores, seeds, len(asked)) for pair in asked
    )
    if not parts:
        return Verdict(claim, UNDECIDED, "none of its tasks was asked for", ())
    words = [part.word for part in parts]
    word = next(w for w in (CONTRADICTED, UNDECIDED, REPRODUCED) if w in words)
    return Verdict(claim, word, _why(word, claim, parts, columns), parts)


def _part(
    pair: Pair, margin: float, scores: Scores, seeds: int, comparisons: int
) -> Part:
    first, second = (scores.get((name, pair.column), {}) for name in pair[:2])
    both = sorted(first.keys() & second.keys())
    differences = tuple(first[seed] - second[seed] for seed in both)
    mean = statistics.fmean(differences) if differences else math.nan
    if reason := _undecidable(differences, seeds):
        none = (-math.inf, math.inf)
        return Part(pair, differences, mean, *none, UNDECIDED, reason)
    usual = interval(differences)
    wide = interval(differences, 1 - (1 - LEVEL) / comparisons)
    return Part(pair, differences, mean, *usual, _word(margin, usual, wide), "")


def _undecidable(differences: Sequence[float], seeds: int) -> str:
    """Returns why the differences can decide nothing, or "" if they can."""
    if not differences:
        return "not run"
    if not all(map(math.isfinite, differences)):
        return "a score is not a number"
    if len(differences) < seeds:
        return f"only {len(differences)} of {seeds} seeds have both scores"
    if seeds < 2:
        return "one seed decides nothing"
    if max(differences) - min(differences) < _SAME:
        return "all seeds differ by the same, so their spread says nothing"
    return ""


def _word(margin: float, usual: tuple[float, float], wide: tuple[float, float]) -> str:
    low, high = (-margin, margin) if margin else (0.0, math.inf)
    if low < usual[0] and usual[1] < high:
        return REPRODUCED
    return CONTRADICTED if wide[1] < low or wide[0] > high else UNDECIDED


def _why(word: str, claim: Claim, parts: Sequence[Part], columns: Sequence[str]) -> str:
    """Returns one line: how many comparisons had each verdict, and those left out."""
    words = Counter(part.word for part in parts)
    kinds = (REPRODUCED, CONTRADICTED, UNDECIDED)
    counts = [f"{words[kind]} {kind}" for kind in kinds if words[kind]]
    said = f"of {len(parts)} comparison{'s' * (len(parts) > 1)} {', '.join(counts)}"
    reasons = dict.fromkeys(part.why for part in parts if part.why)
    if word == UNDECIDED and reasons:
        said += f" ({'; '.join(reasons)})"
    left = dict.fromkeys(p.column for p in claim.pairs if p.column not in columns)
    return said + (f"; not asked for: {', '.join(left)}" if left else "")
