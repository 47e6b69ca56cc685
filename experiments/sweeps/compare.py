"""Runs side by side: how their configs differ, what they reached, their curves.

    python -m experiments.sweeps.compare runs/a runs/b
    python -m experiments.sweeps.compare 'runs/sweep/*' --output=compare.html
    python -m experiments.sweeps.compare 'runs/ner-*' --split=test --score=precision

Runs that differ by their seed alone share a row: the mean of the score and its 95%
interval (Student's t). The best stands first; of the others also how much they differ
from it, with an interval: over the seeds that both have, whose runs saw the data in the
same order, else over all runs (Welch's t). The score is that of the checkpoint that the
run's predictions are from: the last one, or the best. With --output also writes a page
with plots, the final scores with their intervals and the scores by step, and both plots
as FILE.png; these need matplotlib.
"""

import glob
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict

from bert_jax.errors import UserError, printable
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import write_atomically
from bert_jax.runtime.terminal import say
from bert_jax.tasks.results import lower_is_better
from bert_jax.workdir import metrics
from experiments.lib import command_line, ending, kept, progress, report
from experiments.lib.runs import require_whole
from experiments.sweeps import compared
from experiments.sweeps.compared import Group, Run

SCORE = (
    "default: the first run's evaluate.score, else f1 of ner and squad, masked_lm_loss "
    "of pre-training, or the first"
)
# Fields that say where a run is or how it was queried, not what it is.
_PLACES = (
    *("seed", "train.seeds", "corpus.data_dir", "mesh.", "predict.", "checkpoint."),
    *("train.log_every", "train.trackers", "train.stall_seconds"),
    "train.deterministic",
)
_RESTORE = "restore it, or leave this run out"
# What every run has, and its type.
_NEEDED = {"seed": int, "train.num_steps": int, "train.early_stop": int}


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = command_line.Parser("experiments.sweeps.compare", __doc__)
    parser.add_argument("runs", nargs="+", help="work directories, or patterns")
    parser.add_argument("--split", default="dev", help="of metrics.jsonl")
    parser.add_argument("--score", default="", help=SCORE)
    parser.add_argument("--output", default="", help="FILE.html; FILE.png beside it")
    options = parser.parse_args(argv)
    page = Path(options.output) if options.output else None
    if page:
        if page.suffix != ".html":
            raise UserError(f"--output={page}: write FILE.html")
        what = f"--output={page}: the plots need matplotlib"
        command_line.require("matplotlib", "report", what)
    runs = find(options.runs, options.split)
    print(summary(runs, options.split, options.score, page))
    return 0


def summary(
    runs: Sequence[Run],
    split: str,
    score: str,
    page: Path | None,
    shown: Sequence[str] = (),
) -> str:
    """The table as text; writes the plots.

    Args:
      score: empty: see `choose`.
      page: a file to write, FILE.html, with FILE.png beside it.
      shown: the fields that tell the rows apart; empty: those in which the runs differ.

    Raises:
      UserError: a run lacks the score.
    """
    name = choose(runs, score, split)
    found = groups(runs, name, shown)
    sections = compared.sections(found, split, name)
    said = printable(report.plain(sections))
    if page:
        png = page.with_suffix(".png")
        write_atomically(page, report.page(f"{name} on {split}", sections))
        write_atomically(png, compared.png(found, split, name))
        said += f"\n\nwritten: {page}, {png}"
    return said


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
        fields = _fields(folder)
        lines = metrics.read(folder, split)
        if not lines:
            raise UserError(
                f"{folder}: has no scores on {split} yet; let the run end, or leave "
                "it out"
            )
        runs.append(Run(folder, fields, lines))
    ended = [run for run in runs if _has_ended(run)]
    if not ended:
        raise UserError(f"{runs[0].folder}: has not ended yet; let it end")
    return ended


def _fields(folder: Path) -> dict[str, Any]:
    """The fields of a run's config.json, NAME.FIELD; those that all runs have checked.

    Raises:
      UserError: one is missing, or no such value.
    """
    read = untrusted.read_json(folder, "config.json")
    fields: dict[str, Any] = flatten_dict(read, sep=".")
    for name, kind in _NEEDED.items():
        kept.check(fields, {name: kind}, folder / "config.json", _RESTORE)
    return fields


def _has_ended(run: Run) -> bool:
    """Whether a run took its last step; if not, says that it is left out.

    A seed's config is written at the end; the whole run may grow (train.extend).

    Raises:
      UserError: its metrics.jsonl is cut or damaged.
    """
    whole, beat = _whole(run.folder), {}
    own = kept.read(whole / "config.json", {"train": {"num_steps": int}}, _RESTORE)
    steps = max(run.fields["train.num_steps"], own["train"]["num_steps"])
    if (path := whole / "heartbeat.json").exists():
        beat = kept.read(path, {"phase": str, "step": int}, _RESTORE)
    lines = metrics.read(run.folder, "train")
    step = lines[-1]["step"] if lines else 0
    early = bool(run.fields["train.early_stop"]) and _has_answered(run.folder, lines)
    # Otherwise at work, or killed: it may be in its last evaluation.
    if (step >= steps or early) and beat.get("phase", "ended") == "ended":
        if metrics.read(run.folder, "dev"):  # else it may have no data of dev
            end = max(step, beat.get("step", 0)) if early else steps
            require_whole(run.folder, end, _RESTORE)
        return True
    say(f"left out: {run.folder} is at step {step:,} of {steps:,}; let it end")
    return False


def _whole(folder: Path) -> Path:
    """The work directory of the run that a seed's folder is part of."""
    above = folder.parent
    is_part = folder.name.startswith("seed_") and (above / "config.json").exists()
    return above if is_part else folder


def _has_answered(folder: Path, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether its predictions are from its end, not from before it was extended."""
    place = folder / "predictions"
    if not place.exists():
        return False
    last = max((line.get("time", 0.0) for line in lines), default=0.0)
    return max(path.stat().st_mtime for path in (place, *place.rglob("*"))) >= last


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
    names = progress.scores_of(runs[0].lines[-1])
    if not names:
        raise UserError(
            f"{runs[0].folder / 'metrics.jsonl'}: its last line on {split} has no "
            f"scores; {_RESTORE}"
        )
    shared = [key for key in names if all(key in run.lines[-1] for run in runs)]
    fields = runs[0].fields
    task, selects = fields.get("task.name", ""), fields.get("evaluate.score", "")
    name = asked or progress.main_score(shared or names, task, selects)
    for run in runs:
        if name not in (there := progress.scores_of(run.lines[-1])):
            raise UserError(
                f"{run.folder}: has no {name} on {split}; it has {', '.join(there)}: "
                "choose one with --score that all runs have"
            )
    return name


def groups(runs: Sequence[Run], score: str, shown: Sequence[str] = ()) -> list[Group]:
    """Runs that differ by their seed alone, together; the best mean first.

    Args:
      shown: see `show`.
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


def _final(run: Run, score: str) -> float:
    """The score of the checkpoint that the run's predictions are from."""
    values = {line["step"]: float(line[score]) for line in run.lines if score in line}
    last = list(values)[-1]
    if run.fields.get("evaluate.checkpoint") == "best":
        names = (path.name for path in (run.folder / "best").glob("[0-9]*"))
        steps = [int(name) for name in names if name.isdecimal()]  # whole ones
        last = next((step for step in steps if step in values), last)
    return values[last]


if __name__ == "__main__":
    ending.start(main)
