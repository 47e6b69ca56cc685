"""Comparison of settings by their scores on dev, over the seeds."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.commands import plots, runner
from bert_jax.commands.intervals import estimate, interval, number
from bert_jax.commands.report import Figure, Table
from bert_jax.commands.runner import Run
from bert_jax.errors import UserError
from bert_jax.tasks.task import lower_is_better

_SAME = 1e-6  # scores closer than this are the same but for rounding
Lines = Sequence[Mapping[str, Any]]  # lines of metrics.jsonl, on dev


class Setting(NamedTuple):
    """Runs that differ by their seed alone.

    Attributes:
      scores: Scores by seed.
      curves: Scores by step, of each seed.
    """

    name: str
    scores: Mapping[int, float]
    curves: Sequence[Mapping[int, float]] = ({},)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores.values())


def settings(runs: Iterable[tuple[str, Run]], asked: str) -> tuple[list[Setting], str]:
    """Returns the settings, the best first, and the name of their score.

    Args:
      runs: Runs that have ended, each with the name of its setting.
      asked: Name of the score. Empty means the task's main score.

    Raises:
      UserError: A run's log is cut, or lacks the score.
    """
    found: dict[str, dict[int, tuple[dict[str, Any], Path, Lines]]] = {}
    for name, run in runs:
        for seed, lines in run.log().items():
            folder = run.seeds()[seed]
            config = runner.read_json(folder / "config.json")
            found.setdefault(name, {})[config["seed"]] = config, folder, lines
    every = [each for by_seed in found.values() for each in by_seed.values()]
    score = _choose(every, asked)
    sign = 1 if lower_is_better(score) else -1
    each = [
        Setting(
            name,
            {seed: _final(*one, score) for seed, one in by_seed.items()},
            [_by_step(lines, score) for *_, lines in by_seed.values()],
        )
        for name, by_seed in found.items()
    ]
    each.sort(key=lambda one: (math.isnan(one.mean), sign * one.mean))
    return each, score


def _choose(every: Sequence[tuple[Any, Path, Lines]], asked: str) -> str:
    names = [
        [name for name in lines[-1] if name not in ("step", "split", "time")]
        for *_, lines in every
    ]
    shared = [name for name in names[0] if all(name in other for other in names)]
    # A pre-training's `loss` is that of its objective. Its cross entropy tells more.
    config = every[0][0]
    is_f1 = config["task"]["name"] in ("ner", "squad")
    selects = config["evaluate"].get("score", "")  # runs of before have none
    main = selects or ("f1" if is_f1 else "masked_lm_loss")
    score = asked or (main if main in shared else (shared or names[0])[0])
    for (_, folder, _), there in zip(every, names, strict=True):
        if score not in there:
            raise UserError(
                f"{folder}: has no {score} on dev; it has {', '.join(there)}: choose "
                "one with --score that all runs have"
            )
    return score


def _final(config: Mapping[str, Any], folder: Path, lines: Lines, score: str) -> float:
    """Returns the score of the checkpoint that the run's predictions are from."""
    values = _by_step(lines, score)
    last = list(values)[-1]
    if config["evaluate"]["checkpoint"] == "best":
        names = (path.name for path in (folder / "best").glob("[0-9]*"))
        steps = [int(name) for name in names if name.isdecimal()]  # whole ones
        last = next((step for step in steps if step in values), last)
    return values[last]


def _by_step(lines: Lines, score: str) -> dict[int, float]:
    return {line["step"]: float(line[score]) for line in lines if score in line}


def difference(setting: Setting, other: Setting) -> tuple[float, float, float, int]:
    """Compares two settings over the seeds that both have, which had the same order of
    data.

    Returns:
      The mean difference (without such seeds that of the means), the ends of its 95%
      interval, and the number of these seeds. It has no ends where these are too few,
      or all differ by the same.
    """
    scores, others = setting.scores, other.scores
    pairs = [scores[seed] - others[seed] for seed in scores if seed in others]
    mean = statistics.fmean(pairs) if pairs else setting.mean - other.mean
    ends = interval(pairs)
    if pairs and max(pairs) - min(pairs) < _SAME:
        ends = (-math.inf, math.inf)
    return mean, *ends, len(pairs)


def plain(found: Sequence[Setting], score: str) -> dict[str, Any]:
    """Returns the scores as JSON has them, with null where a value is not finite."""
    scores = {
        one.name: {str(seed): number(value) for seed, value in one.scores.items()}
        for one in found
    }
    return {"score": score, "scores": scores}


def comparison_table(found: Sequence[Setting], score: str) -> Table:
    """Returns the means, and the others' differences from the best."""
    rows = []
    for rank, one in enumerate(found, 1):
        mean, reach = estimate([*one.scores.values()])
        shown = f"± {reach:.2g}" if math.isfinite(reach) else ""
        row = [str(rank), one.name, f"{mean:.4g}", shown, str(len(one.scores))]
        if len(found) > 1:
            mean, low, high, pairs = difference(one, found[0])
            ends = f"{low:+.2g} to {high:+.2g}" if math.isfinite(low) else ""
            cells = (f"{mean:+.3g}", ends, str(pairs or ""))
            row += cells if rank > 1 else ("", "", "")
        rows.append(row)
    header = ["", "runs", f"dev {score}", "95%", "seeds"]
    better = "lower" if lower_is_better(score) else "higher"
    notes = [
        f"dev {score}: its mean over the seeds ({better} is better), the best first",
        "95%: half of Student's t interval of that mean over seeds, for the same data",
    ]
    if len(found) == 1:
        return Table(rows, header, "\n".join(notes))
    header += ["less row 1", "95% interval", "pairs"]
    notes += [
        "less row 1: the mean difference from row 1 between runs of the same seed",
        "95% interval: Student's t interval of it; with 0 inside, it may be chance",
        "pairs: the number of seeds that both rows have",
    ]
    return Table(rows, header, "\n".join(notes))


def figures(found: Sequence[Setting], score: str) -> list[Figure]:
    """Plots the scores, and the best settings' by step if there are several steps."""
    label = f"dev {score}"
    rows = {one.name: [*one.scores.values()] for one in found}
    drawn = [Figure("scores", lambda: plots.dots(rows, label))]
    curves = {one.name: points for one in found[:6] if len(points := _means(one)) > 1}
    if curves:
        panel = plots.Panel("", "step", label, curves)
        drawn.append(Figure("by_step", lambda: plots.lines([panel])))
    return drawn


def _means(setting: Setting) -> plots.Points:
    """Returns the mean and half of its interval at each step that all seeds have."""
    shared = set.intersection(*map(set, setting.curves))
    points = []
    for step in sorted(shared):
        mean, reach = estimate([curve[step] for curve in setting.curves])
        points.append((step, mean, reach if math.isfinite(reach) else 0.0))
    return points
