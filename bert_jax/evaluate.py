"""`--mode=evaluate`: scores a checkpoint on its task's data."""

import json
import logging

from bert_jax.errors import UserError
from bert_jax.runtime import processes, terminal
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
from bert_jax.training import run_config, setup
from bert_jax.training.inference import Evaluator
from bert_jax.training.seeds import Seeds
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import has_checkpoint

log = logging.getLogger(__name__)


def evaluate(task: Task, folder: Path) -> None:
    """Evaluates a checkpoint on each split, prints one JSON line of scores for each,
    and writes the prediction files.

    For other data than the run's, or another checkpoint, the files go to a subfolder of
    `predictions`. What is fitted on the dev split (SQuAD's threshold) belongs to the
    run: it is fitted here only if the run has not done so for this checkpoint.

    Raises:
      UserError: No split has data.
    """
    if not task.splits:
        raise UserError(
            f"config.evaluate.splits={tuple(task.config.evaluate.splits)}: no data is "
            "named to evaluate; set --config.task.dev_file=FILE"
        )
    is_run = has_checkpoint(folder)
    name = run_config.predictions_subfolder(folder, task.config) if is_run else ""
    predictions = folder / "predictions" / name if name else folder / "predictions"
    task.reuse_prepared_data(workdir.read_data(folder) if is_run else {})
    restored = setup.restored_params(
        task, folder, task.unused_parameters(), uses=("evaluate",)
    )
    task, now = task.with_fitted(restored.fitted), restored.step
    other_data = name not in ("", task.config.evaluate.checkpoint)
    learns = is_run and not other_data and not task.fitted
    if is_run and not learns:
        workdir.warn_unfitted(task.config.task, task.fitted)
    evaluator = Evaluator(task, Seeds(task.config, 1), restored.mesh, learns=learns)
    scores: dict[str, dict[str, float]] = {}
    for split in task.splits:
        (results,) = evaluator.results(restored.params, split, now)
        if processes.is_first():
            print(json.dumps({"step": now, "split": split, **results.scores}))
            results.write(predictions)
            scores[split] = results.scores
    if len(scores) > 1 and len({*map(tuple, scores.values())}) == 1:
        rows = [
            (split, *(f"{number:.4g}" for number in numbers.values()))
            for split, numbers in scores.items()
        ]
        log.info("%s", terminal.format_table(rows, ("", *results.scores)))
    if not processes.is_first():
        return
    for what, count in task.notices.items():
        log.info("%s: %s", what, f"{count:,}")
    if learns:
        workdir.write_facts(folder, results.fitted, now)
    if predictions.is_dir():
        log.info("predictions: %s", predictions)
