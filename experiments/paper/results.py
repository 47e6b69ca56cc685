"""Results of a table's runs: scores, verdicts, and the files with them."""

import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.commands import runner
from bert_jax.commands.intervals import estimate, number
from bert_jax.commands.runner import Run
from bert_jax.errors import UserError
from experiments.lib.verdicts import Scores, Verdict, judge
from experiments.paper import budget, runs
from experiments.paper.options import Options
from experiments.paper.systems import AVERAGE, Column, System, Table


class Cell(NamedTuple):
    """A system's scores on a column, in points, by seed, and the paper's figure."""

    seeds: Mapping[int, float]
    paper: float | None

    @property
    def estimate(self) -> tuple[float, float]:
        """See `intervals.estimate`."""
        return estimate(list(self.seeds.values()))


class Results(NamedTuple):
    """Everything that a report prints.

    Attributes:
      columns: Columns whose tasks had data.
      cells: Cells by system and column.
      baselines: The majority class's scores by column, where they mean something.
      losses: Last numbers of each system's pre-training on held-out text.
      costs: Words and cost of their pre-training, where systems are compared.
      about: Circumstances, by name.
      runs: Folder, kind, state, seconds, command and error of each run.
    """

    table: Table
    size: str
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, str], Cell]
    baselines: Mapping[str, float]
    losses: Mapping[str, Mapping[str, float]]
    costs: Mapping[str, Mapping[str, float]]
    verdicts: tuple[Verdict, ...]
    about: Mapping[str, str]
    runs: tuple[Mapping[str, Any], ...]


def collect(
    options: Options, planned: Sequence[Run], errors: Mapping[Path, str]
) -> Results:
    """Reads the results that the runs have left."""
    table = options.table
    columns = tuple(c for c in table.columns if c.task in options.found)
    cells = {
        (system.name, column.key): Cell(
            scores_of(options, system, column),
            table.published.rows.get(system.paper, {}).get(column.key),
        )
        for system in table.systems
        for column in columns
    }
    averaged = [column.key for column in columns if column.key in table.averaged]
    if len(averaged) > 1:  # they come before the others
        columns = (*columns[: len(averaged)], AVERAGE, *columns[len(averaged) :])
        for system in table.systems:
            each = [cells[system.name, key] for key in averaged]
            cells[system.name, AVERAGE.key] = mean_of(each)
    scores: Scores = {key: cell.seeds for key, cell in cells.items()}
    keys = [column.key for column in columns]
    judged = tuple(judge(claim, scores, keys, options.seeds) for claim in table.claims)
    said = tuple(_about(run, errors.get(run.folder, "")) for run in planned)
    losses = {
        system.line or system.name: _loss(options, system)
        for system in table.systems
        if not system.choice
    }
    single = [column for column in columns if column != AVERAGE]
    majority = {column.key: baseline(options, column) for column in single}
    known = {key: value for key, value in majority.items() if value is not None}
    if len(averaged) > 1 and known.keys() >= set(averaged):
        known[AVERAGE.key] = statistics.fmean(known[key] for key in averaged)
    costs = {s.line or s.name: _cost(options, s) for s in table.systems}
    return Results(
        *(table, options.size, columns, cells, known, losses, costs, judged),
        *(circumstances(options), said),
    )


def mean_of(cells: Sequence[Cell]) -> Cell:
    """Returns the mean of several columns by seed, of the seeds that have all."""
    seeds = set.intersection(*(set(cell.seeds) for cell in cells))
    means = {
        s: statistics.fmean(cell.seeds[s] for cell in cells) for s in sorted(seeds)
    }
    papers = [cell.paper for cell in cells if cell.paper is not None]
    paper = statistics.fmean(papers) if len(papers) == len(cells) else None
    return Cell(means, paper)


def _cost(options: Options, system: System) -> Mapping[str, float]:
    """Reads words, steps, FLOPs and seconds of a pre-training that has ended."""
    run = runs.pretraining(options, system.pretraining)
    path = budget.path(run.folder)
    if not (run.is_done and path.exists()):
        return {}
    return {
        **runner.read_json(path),
        "seconds": runner.read_json(run.result)["seconds"],
    }


def _loss(options: Options, system: System) -> Mapping[str, float]:
    if system.share < 100:
        return {}
    run = runs.pretraining(options, system.pretraining)
    log = run.folder / "metrics.jsonl"  # others' weights, and words' vectors, have none
    if not run.is_done or (run.kind != "pre-training" and not log.exists()):
        return {}
    (lines,) = run.log().values()
    names = ("perplexity", "next_sentence_accuracy", "next_sentence_majority", "step")
    return {name: lines[-1][name] for name in names if name in lines[-1]}


def circumstances(options: Options) -> dict[str, str]:
    """Describes the requested runs."""
    config = options.resolved
    given = f"{config.train.num_steps:,} steps of {config.train.batch_size} sequences"
    if options.words:
        given = f"{options.words:,} words of text for each system"
    configs = ", ".join(Path(spec).name for spec in options.configs.values())
    begin = {
        "pre-training": f"{given}, config {configs}",
        "fields of pre-training": " ".join(options.fields) or "none",
        "corpus": ", ".join(config.corpus.sources),
    }
    if options.weights:
        begin = {"weights": ", ".join(options.weights)}
    return {
        "size": options.size,
        **begin,
        "fine-tuning": f"{options.seeds} seeds of each, 0 to {options.seeds - 1}",
        "fields of fine-tuning": " ".join(options.finetuning) or "none",
        "left out": "; ".join(f"{k}: {v}" for k, v in options.missing.items()) or "-",
    }


def _about(run: Run, error: str) -> dict[str, Any]:
    done = runner.read_json(run.result) if run.is_done else {}
    return {
        "folder": str(run.folder),
        "kind": run.kind,
        "state": "done" if done else ("failed" if error else "to do"),
        "seconds": done.get("seconds"),
        "command": shlex.join(run.command),
        "error": error,
    }


def scores_of(options: Options, system: System, column: Column) -> dict[int, float]:
    """Returns a system's scores on a column, in points, of the seeds that ended."""
    found: dict[int, float] = {}
    choice = system.choice or (column.score if column.task == "features" else "")
    for run in runs.finetuning(options, system, column.task):
        if not run.is_done:
            continue
        if run.kind == "features":
            return _of_features(run.folder, choice, options.seeds)
        name, lacks = column.score, column.split != "dev"  # MNLI's dev_mismatched
        log = run.log(column.split, [name], may_lack=lacks)
        if column.task == "imdb":  # published figures are on test, where it has labels
            tested = run.log("test", [name], may_lack="test" not in _baselines(run))
            log = {seed: tested[seed] or log[seed] for seed in log}
        last = {seed: lines[-1][name] for seed, lines in log.items() if lines}
        found |= {seed: column.scale * score for seed, score in last.items()}
    return found


def baseline(options: Options, column: Column) -> float | None:
    """Returns the majority class's score on a column, in points, where one is known."""
    if column.task == "features":
        return None
    for system in options.table.systems:
        for run in runs.finetuning(options, system, column.task):
            said = _baselines(run) if run.is_done else {}
            split = "test" if column.task == "imdb" and "test" in said else column.split
            score = said.get(split, {}).get(column.score)
            if score is not None:
                return column.scale * score
    return None


def _baselines(run: Run) -> dict[str, dict[str, float]]:
    """Reads the majority baseline's scores by split from a run's output."""
    found: dict[str, dict[str, float]] = {}
    split = ""
    text = run.printed.read_text(errors="replace") if run.printed.exists() else ""
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if cells[1:] == ["model", "majority baseline"]:
            split = cells[0]
        elif not line.strip():
            split = ""
        elif split and len(cells) == 3 and not line.startswith("-"):
            found.setdefault(split, {})[cells[0]] = float(cells[2])
    return found


def _of_features(folder: Path, choice: str, seeds: int) -> dict[int, float]:
    """Returns F1 on dev. It is empty if the model has too few layers for the choice."""
    hint = f"delete {folder / 'result.json'}, and the same command writes both again"
    found = runner.read_json(folder / "results.json", hint)
    if found["score"] != "f1":
        raise UserError(f"{folder}: scored by {found['score']}, not F1 of entities")
    if choice not in found["choices"]:
        return {}
    restarts = found["choices"][choice]["dev"]["restarts"]
    return {seed: 100 * restarts[seed] for seed in range(min(seeds, len(restarts)))}


def plain(found: Results) -> dict[str, Any]:
    """Returns the results as JSON has them, with null where a value is not finite."""
    return {
        "table": found.table.name,
        "title": found.table.published.title,
        "source": found.table.published.source,
        "about": dict(found.about),
        "scores": [
            {
                "system": system.name,
                "column": column.key,
                "seeds": {str(k): number(v) for k, v in cell.seeds.items()},
                "mean": number(cell.estimate[0]),
                "interval_95": number(cell.estimate[1]),
                "paper": cell.paper,
            }
            for system in found.table.systems
            for column in found.columns
            for cell in [found.cells[system.name, column.key]]
        ],
        "majority": dict(found.baselines),
        "pretraining": {
            name: {**last, **found.costs[name]} for name, last in found.losses.items()
        },
        "claims": [verdict.plain() for verdict in found.verdicts],
        "runs": list(found.runs),
    }
