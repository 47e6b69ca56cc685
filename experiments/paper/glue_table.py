"""What a grid of GLUE runs amounts to: the table, and the files to submit."""

import math
import statistics
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.runtime import terminal
from bert_jax.tasks.glue.data import TASKS
from experiments.lib import published

# The paper's table 1 leaves WNLI out (section 4.1).
USUAL = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
# What the leaderboard wants, and the task whose run writes it.
FILES = {
    **{f"{task.title}.tsv": name for name, task in TASKS.items() if name != "mnli"},
    "MNLI-m.tsv": "mnli",
    "MNLI-mm.tsv": "mnli",
    "AX.tsv": "mnli",
}
_SETTINGS = ("task", "score", "learning rate", "epochs", "runs", "mean", "spread")
_PICKED = ("picked", "score", "learning rate", "epochs", "seed", "dev")
_PAPER = ("Base*", "Large*")
_NOTE = """dev scores in percent; spread: standard deviation over the seeds
* of the paper, on test"""


class Result(NamedTuple):
    """A finished run.

    `scores` are those of each dev split; `folder` is its work directory.
    """

    task: str
    learning_rate: float
    epochs: float
    seed: int
    folder: Path
    scores: dict[str, dict[str, float]]

    def main(self, split: str = "dev") -> float:
        """The task's main score, in percent."""
        return 100 * self.scores[split][TASKS[self.task].main_score]


def order(score: float) -> float:
    """What scores are compared by: one that is not a number is the worst."""
    return -math.inf if math.isnan(score) else score


def picked(results: Sequence[Result]) -> dict[str, Result]:
    """The run of each task that is best on dev; of equal ones, the first."""
    best: dict[str, Result] = {}
    for result in results:
        before = best.setdefault(result.task, result)
        if order(result.main()) > order(before.main()):
            best[result.task] = result
    return best


def table(results: Sequence[Result]) -> str:
    """Two tables, the paper's scores beside both: of each setting the mean, the spread
    and the best of its seeds; and the picked runs."""
    settings: dict[tuple, list[Result]] = {}
    for result in results:
        key = (result.task, result.learning_rate, result.epochs)
        settings.setdefault(key, []).append(result)
    rows: list[tuple[str, ...]] = []
    for group in settings.values():
        for split in dict.fromkeys(name for result in group for name in result.scores):
            values = [result.main(split) for result in group if split in result.scores]
            first = (*_beginning(group[0], split), str(len(values)))
            usual, most = statistics.fmean(values), max(values, key=order)
            middle = (f"{usual:.1f}", _spread(values), f"{most:.1f}")
            rows.append((*first, *middle, *_paper(group[0].task, split)))
    chosen: list[tuple[str, ...]] = []
    found = {}
    best = picked(results)
    for task, result in best.items():
        for split in result.scores:
            found[task, split] = result.main(split)
            first = (*_beginning(result, split), str(result.seed))
            chosen.append((*first, f"{result.main(split):.1f}", *_paper(task, split)))
    nine = {("mnli", "dev_mismatched"), *((task, "dev") for task in USUAL)}
    if nine <= found.keys():
        mean = f"{statistics.mean(found[each] for each in nine):.1f}"
        average = ("average without WNLI", "", "", "", "", mean)
        chosen.append((*average, *_paper("average", "dev")))
        if "wnli" in best:
            large = f"{published.GLUE_SCORE_LARGE:.1f}"
            own = f"{glue_score(best):.1f}"
            chosen.append(("GLUE score, with WNLI", "", "", "", "", own, "", large))
    tables = (
        terminal.table(rows, (*_SETTINGS, "best", *_PAPER)),
        terminal.table(chosen, (*_PICKED, *_PAPER)),
    )
    return "\n\n".join((*tables, _NOTE))


def _spread(values: Sequence[float]) -> str:
    """The standard deviation as it is shown; statistics.stdev takes no nan."""
    finite = all(map(math.isfinite, values))
    return f"{statistics.stdev(values):.1f}" if finite and len(values) > 1 else ""


def glue_score(best: Mapping[str, Result]) -> float:
    """The benchmark's score, in percent: the mean over nine tasks, WNLI among them, of
    each one's mean over its scores (of MNLI over both dev sets; of CoLA, Matthews).

    So BERT-Large's table 1 (with the leaderboard's accuracy of QQP 89.3 and MRPC 85.4,
    Pearson of STS-B 87.6 and WNLI's majority, 65.1) gives the abstract's 80.5.
    """
    tasks = []
    for name in (*USUAL, "wnli"):
        names = TASKS[name].scores if name != "cola" else ("matthews",)
        splits = best[name].scores.values()
        values = [scores[score] for scores in splits for score in names]
        tasks.append(100 * statistics.fmean(values))
    return statistics.fmean(tasks)


def submission(results: Sequence[Result], path: Path) -> str:
    """Writes the zip of the picked runs' test predictions, and says what it lacks."""
    best = picked(results)
    files, missing = [], []
    for name, task in sorted(FILES.items()):
        file = best[task].folder / "predictions" / name if task in best else None
        if file is not None and file.exists():
            files.append((name, file.read_bytes()))
        else:
            missing.append(name)
    if not files:
        return "no test predictions, so nothing to submit"
    temporary = path.with_suffix(".part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            # A time of its own: the same predictions are the same file.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    temporary.replace(path)
    said = f"{path}: {', '.join(name for name, _ in files)}"
    if missing:
        said += f"\nNOT in it, so the leaderboard may refuse it: {', '.join(missing)}"
    return said


def _beginning(result: Result, split: str) -> tuple[str, ...]:
    """Task, score, learning rate and epochs, as they are shown."""
    name = result.task
    if split == "dev_mismatched":
        name = f"{name} mismatched"
    score = TASKS[result.task].main_score
    return name, score, f"{result.learning_rate:g}", f"{result.epochs:g}"


def _paper(task: str, split: str) -> tuple[str, ...]:
    """Table 1's test scores of BERT-Base and BERT-Large, in percent."""
    systems = (published.TABLE_1.rows[f"BERT-{size}"] for size in ("Base", "Large"))
    scores = (row.get(task + split.removeprefix("dev")) for row in systems)
    return tuple("" if score is None else f"{score:.1f}" for score in scores)
