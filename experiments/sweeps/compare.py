"""Runs side by side: how their configs differ, what they reached, their curves.

    python -m experiments.sweeps.compare runs/a runs/b
    python -m experiments.sweeps.compare 'runs/sweep/*' --output=runs/compared
    python -m experiments.sweeps.compare 'runs/ner-*' --split=test --score=precision

Runs that differ by their seed alone share a row: the mean of the score and its 95%
interval (Student's t). The best stands first; of the others also how much they differ
from it, with an interval: over the seeds that both have, whose runs saw the data in the
same order, else over all runs (Welch's t). The score is that of the checkpoint that the
run's predictions are from: the last one, or the best. With --output also writes a
folder with report.md and plots of the final scores and of the scores by step; these
need matplotlib.
"""

import glob
import json
import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict
from scipy import stats

from bert_jax.errors import UserError, printable
from bert_jax.runtime.terminal import say
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import metrics
from experiments.lib import command_line, ending, kept, plots, report
from experiments.lib.report import Figure, Section, Table
from experiments.lib.verdicts import LEVEL, estimate, interval, number

SCORE = "default: f1 of ner and squad, masked_lm_loss of pre-training, else the first"
# Fields that say where a run is or how it was queried, not what it is.
_PLACES = (
    *("seed", "train.seeds", "corpus.data_dir", "mesh.", "predict.", "checkpoint."),
    *("train.log_every", "train.trackers", "train.stall_seconds"),
    "train.deterministic",
)
_SAME = 1e-6  # scores closer than this are the same but for rounding
_MOST_LINES = 12  # of the plot by step: more cannot be told apart


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


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = command_line.Parser("experiments.sweeps.compare", __doc__)
    parser.add_argument("runs", nargs="+", help="work directories, or patterns")
    parser.add_argument("--split", default="dev", help="of metrics.jsonl")
    parser.add_argument("--score", default="", help=SCORE)
    parser.add_argument("--output", default="", help="a folder, for plots too")
    options = parser.parse_args(argv)
    if options.output:
        what = f"--output={options.output}: the plots need matplotlib"
        command_line.require("matplotlib", "report", what)
    runs = find(options.runs, options.split)
    output = Path(options.output) if options.output else None
    print(summary(runs, options.split, options.score, output))
    return 0


def summary(
    runs: Sequence[Run],
    split: str,
    score: str,
    output: Path | None,
    shown: Sequence[str] = (),
) -> str:
    """The table as text; writes the report into `output`, if it is given.

    Args:
      score: empty means the task's main score.
      shown: the fields that tell the rows apart; empty: those in which the runs differ.

    Raises:
      UserError: a run lacks the score.
    """
    name = choose(runs, score, split)
    found = groups(runs, name, shown)
    sections = [Section("", [_table(found, split, name), *_figures(found, name)])]
    if output is None:
        return printable(report.plain(sections))
    results = {
        "split": split,
        "score": name,
        "groups": [
            {"fields": dict(x.fields), "runs": [str(r.folder) for r in x.runs]}
            | {"scores": [number(score) for score in x.scores]}
            for x in found
        ],
    }
    return printable(report.write(output, sections, results))


def find(places: Sequence[str], split: str) -> list[Run]:
    """The runs in these folders that have ended; of several seeds, each seed's.

    Raises:
      UserError: a folder has no run, or a run has no line of the split; none has ended.
    """
    folders: dict[Path, None] = {}
    for place in places:
        hits = sorted(map(Path, glob.glob(place))) or [Path(place)]
        inner = [path for hit in hits for path in _runs_in(hit)]
        if not inner:
            raise UserError(f"{place}: has no run (a folder with config.json)")
        folders |= dict.fromkeys(path.resolve() for path in inner)
    runs = []
    for folder in folders:
        fields = flatten_dict(kept.read(folder / "config.json", "restore it"), sep=".")
        lines, train, dev = (metrics.read(folder, s) for s in (split, "train", "dev"))
        if not lines:
            raise UserError(
                f"{folder}: has no scores on {split} yet; let the run end, or leave "
                "it out"
            )
        step, steps = train[-1]["step"] if train else 0, _steps(folder, fields)
        early = fields["train.early_stop"] and (folder / "predictions").exists()
        # A run without dev's last line may be in its last evaluation.
        if early or min(step, dev[-1]["step"] if dev else step) >= steps:
            runs.append(Run(folder, fields, lines))
        else:
            say(f"left out: {folder} is at step {step:,} of {steps:,}; let it end")
    if not runs:
        raise UserError(f"{places[0]}: has not ended yet; let it end")
    return runs


def _steps(folder: Path, fields: Mapping[str, Any]) -> int:
    """The steps of a run. The config of a seed is written at the end, so the config of
    the whole run counts where it was given more steps since."""
    whole, own = folder.parent / "config.json", fields["train.num_steps"]
    if not (folder.name.startswith("seed_") and whole.exists()):
        return own
    return max(own, kept.read(whole, "restore it")["train"]["num_steps"])


def _runs_in(folder: Path) -> list[Path]:
    seeds = sorted(folder.glob("seed_*/config.json"))
    if seeds:
        return [path.parent for path in seeds]
    if any(folder.glob("seed_*/metrics.jsonl")):
        raise UserError(f"{folder}: its seeds have not ended yet; let them end")
    return [folder] if (folder / "config.json").exists() else []


def choose(runs: Sequence[Run], asked: str, split: str) -> str:
    """The score to compare.

    Raises:
      UserError: a run lacks it.
    """
    each = [
        [name for name in run.lines[-1] if name not in ("step", "split", "time")]
        for run in runs
    ]
    shared = [name for name in each[0] if all(name in names for names in each)]
    task = runs[0].fields.get("task.name", "")
    # A pre-training's `loss` is whatever it trains; its cross entropy says more.
    main = "f1" if task in ("ner", "squad") else "masked_lm_loss"
    score = asked or (main if main in shared else (shared or each[0] or [""])[0])
    for run, names in zip(runs, each, strict=True):
        if score not in names:
            raise UserError(
                f"{run.folder}: has no {score} on {split}; it has {', '.join(names)}: "
                "choose one with --score that all runs have"
            )
    return score


def groups(runs: Sequence[Run], score: str, shown: Sequence[str] = ()) -> list[Group]:
    """Runs that differ by their seed alone, together; the best mean first.

    Args:
      shown: see `summary`.
    """
    shown = shown or [
        name
        for name in dict.fromkeys(name for run in runs for name in run.fields)
        if not name.startswith(_PLACES)
        and len({json.dumps(run.fields.get(name)) for run in runs}) > 1
    ]
    together: dict[str, Group] = {}
    for run in runs:
        fields = {name: run.fields.get(name) for name in shown}
        group = together.setdefault(json.dumps(fields), Group(fields, [], []))
        twin = [one for one in group.runs if one.seed == run.seed]
        if twin:
            say(f"left out: {run.folder} has the config and seed of {twin[0].folder}")
        else:
            group.runs.append(run)
            group.scores.append(_final(run, score))
    sign = 1 if lower_is_better(score) else -1

    def order(group: Group) -> tuple[bool, float]:
        return math.isnan(group.mean), sign * group.mean

    return sorted(together.values(), key=order)


def lower_is_better(score: str) -> bool:
    return score.endswith(("loss", "perplexity", "entropy"))


def _final(run: Run, score: str) -> float:
    """The score of the checkpoint that the run's predictions are from."""
    values = {line["step"]: float(line[score]) for line in run.lines if score in line}
    last = list(values)[-1]
    if run.fields.get("evaluate.checkpoint") == "best":
        names = (path.name for path in (run.folder / "best").glob("[0-9]*"))
        steps = [int(name) for name in names if name.isdecimal()]  # whole ones
        last = next((step for step in steps if step in values), last)
    return values[last]


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


def _table(found: Sequence[Group], split: str, score: str) -> Table:
    rows = []
    for rank, group in enumerate(found, 1):
        mean, reach = estimate(group.scores)
        shown = f"± {reach:.2g}" if math.isfinite(reach) else ""
        row = [str(rank), group.name, f"{mean:.4g}", shown, str(len(group.runs))]
        if len(found) > 1:
            row += _cells(difference(group, found[0])) if rank > 1 else ("", "", "")
        rows.append(row)
    header = ["", "runs", f"{split} {score}", "95%", "seeds"]
    if len(found) == 1:
        return Table(rows, header)
    better = "lower" if lower_is_better(score) else "higher"
    note = (
        f"the best first ({better} is better); less row 1: how much they differ from "
        "it, over the seeds that both have (pairs), else over all"
    )
    return Table(rows, [*header, "less row 1", "95% interval", "pairs"], note)


def _cells(found: Difference) -> tuple[str, str, str]:
    """The mean, the interval and the number of pairs."""
    is_known = math.isfinite(found.low)
    ends = f"{found.low:+.2g} to {found.high:+.2g}" if is_known else ""
    return f"{found.mean:+.3g}", ends, str(found.pairs or "")


def _figures(found: Sequence[Group], score: str) -> list[Figure]:
    """The final scores, and the means by step of the best groups."""
    named = {f"{n}  {group.name[:40]}": group for n, group in enumerate(found, 1)}
    finals = {name: group.scores for name, group in named.items()}
    best = dict(list(named.items())[:_MOST_LINES])
    curves = {name: _by_step(group, score) for name, group in best.items()}
    panel = plots.Panel("", "step", score, curves)
    return [
        Figure(
            *("scores", lambda: plots.intervals(finals, score)[0]),
            "Strokes: runs; dot and line: their mean and its 95% interval.",
        ),
        Figure(
            *("steps", lambda: plots.lines([panel], 7.5, 4.5)),
            f"By step: means over seeds and their 95% intervals. Best {len(best)}.",
        ),
    ]


def _by_step(group: Group, score: str) -> plots.Points:
    found: dict[int, list[float]] = {}
    for run in group.runs:
        for line in run.lines:
            if score in line and math.isfinite(value := float(line[score])):
                found.setdefault(int(line["step"]), []).append(value)
    return [(step, *estimate(values)) for step, values in sorted(found.items())]


if __name__ == "__main__":
    ending.start(main)
