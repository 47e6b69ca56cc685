"""What a table's runs have recorded: scores, the majority baseline, held-out losses."""

from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.workdir import metrics
from experiments.lib import kept
from experiments.lib.runs import Run
from experiments.paper import runs
from experiments.paper.options import Options
from experiments.paper.systems import Column, System


def scores(options: Options, system: System, column: Column) -> dict[int, float]:
    """A system's scores on a column, in points, by seed; of the seeds that ended."""
    found: dict[int, float] = {}
    choice = system.choice or (column.score if column.task == "features" else "")
    for run in runs.scored(options, system, column.task):
        if not run.is_done:
            continue
        if run.kind == "ensemble":
            path = run.folder / "scores.json"
            found_there = kept.read(path, {column.score: float})
            return {0: column.scale * found_there[column.score]}
        if run.kind == "features":
            return _of_features(run.folder, choice, options.seeds)
        folders = [*run.seeds().values()]
        for folder in folders:
            lines = metrics.read(folder, column.split)
            if column.task == "imdb":  # published figures are on test
                lines = metrics.read(folder, "test") or lines
            if lines:  # MNLI may have no mismatched dev set
                if column.score not in lines[-1]:
                    raise UserError(
                        f"{folder}: scored without {column.score}; is the data of "
                        f"{column.title} in --data?"
                    )
                seed = int(folder.name.removeprefix("seed_"))
                found[seed] = column.scale * lines[-1][column.score]
    return found


def baseline(options: Options, column: Column) -> float | None:
    """The majority class's score on a column, in points; None if no run has said it."""
    if column.task == "features":
        return None
    tuned = (
        run
        for system in options.table.systems
        for run in runs.finetuning(options, system, column.task)
    )
    said = (baseline_of(run, column) for run in tuned)
    return next((score for score in said if score is not None), None)


def baseline_of(run: Run, column: Column) -> float | None:
    """The same, of a run; None before its end too."""
    if not run.is_done:
        return None
    said = kept.read(run.result, {}).get("baseline", {})
    kept.check(said, {str: {str: float}}, run.result)
    split = "test" if column.task == "imdb" and "test" in said else column.split
    score = said.get(split, {}).get(column.score)
    return None if score is None else column.scale * score


def _of_features(folder: Path, choice: str, seeds: int) -> dict[int, float]:
    """F1 on dev; empty where the model has too few layers for the choice."""
    hint = f"delete {folder / 'result.json'}, and the same command writes both again"
    path = folder / "results.json"
    of_choice = {"dev": {"restarts": [float]}}
    results = kept.read(path, {"score": str, "choices": {str: of_choice}}, hint)
    if results["score"] != "f1":
        raise UserError(f"{folder}: scored by {results['score']}, not F1 of entities")
    found = results["choices"].get(choice)
    if found is None:
        return {}
    restarts = found["dev"]["restarts"]
    return {seed: 100 * restarts[seed] for seed in range(min(seeds, len(restarts)))}


def last_dev(run: Run) -> dict[str, Any]:
    """The last dev numbers of a run that has ended; empty before."""
    if not run.is_done:
        return {}
    lines = metrics.read(run.folder, "dev")
    return lines[-1] if lines else {}
