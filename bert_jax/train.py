"""The training loop, the same for every task."""

import contextlib
from collections.abc import Mapping

from bert_jax.errors import Interrupted
from bert_jax.runtime import processes, signals
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
from bert_jax.training.run import Run
from bert_jax.training.step import Step
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import trackers


def train(
    task: Task,
    folder: Path,
    code: Mapping[str, bytes] | None = None,
    step: type[Step] = Step,
) -> int:
    """Trains to `config.train.num_steps`, from the newest checkpoint if there is one.

    Args:
      task: The task, whose config is resolved.
      folder: The work directory.
      code: Result of `files.read_code`. None means that the code is not known.
      step: Class of the training step.

    Returns:
      The step whose weights are the run's result.

    Raises:
      UserError: A problem that the user can fix. Leaves no half-written file.
      Interrupted: SIGTERM or Ctrl-C. The step it stopped at is saved.
    """
    trackers.require_package(task.config.train.trackers)
    with contextlib.ExitStack() as stack:
        if processes.is_first():
            stack.enter_context(workdir.lock_workdir(folder))
        processes.barrier()
        run = Run(task, folder, stack, code, step)
        try:
            train_loop(run)
            return run.finish()
        except Interrupted:
            # Only seconds may be left.
            run.anomalies.check_last()
            run.log.note(f"stopping: saving step {run.step} of {run.due.num_steps}")
            run.save(wait=True)
            run.log.note(f"saved step {run.step}; the same command resumes from there")
            raise


def train_loop(run: Run) -> None:
    """Takes steps until the last one, or until dev scores stop improving.

    The order matters: evaluation comes before the step that leaves a state, so a run
    that resumes from that state catches up on an evaluation it missed. An anomaly is
    handled before its step is logged, saved or evaluated.

    Raises:
      Interrupted: A signal arrived. `run.state` is consistent, after `run.step` steps.
    """
    task, due, log, seeds = run.task, run.due, run.log, run.seeds
    while True:
        if due.should_evaluate(run.step):
            run.evaluate()
        patience = task.config.train.early_stop
        if run.step == due.num_steps or run.best_score.should_stop(patience):
            return

        batch = run.next_batch()
        update = run.compiled_step(batch)
        run.profile.before_step(run.step)
        with log.stepping():
            rate = run.learning_rates[run.step]
            given = (seeds.array, rate, run.train_step.constants)
            run.state, metrics = update(run.state, batch, *given)
            run.step += 1
            watched = metrics.pop("watched", None)
            # At most one step runs while the next batch is put together.
            run.anomalies.add(run.step, metrics)
            if due.any_event(run.step):
                run.anomalies.check_last()
        run.profile.after_step(run.step, metrics)
        log.count(run.step, task, batch, run.counted)
        if watched is not None:
            run.write_watched(batch, metrics, watched)

        if due.should_log(run.step):
            log.write_step(run.step, metrics)
        if due.should_save(run.step):
            run.save()
        signals.raise_if_interrupted()
