"""The loop, for every task."""

import contextlib

from bert_jax.errors import Interrupted, UserError
from bert_jax.runtime import processes, storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
from bert_jax.training.history import collapsed
from bert_jax.training.session import Session
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import lock as workdir_lock


def train(task: Task, folder: Path) -> None:
    """Trains to `config.train.num_steps`, from the newest checkpoint if there is one.

    A run that has learnt nothing is said to have collapsed; `config.train.restarts`
    times it is archived and restarted with the next seed.

    Args:
      task: its config is resolved.
      folder: the work directory.

    Raises:
      UserError: what the user can mend; nothing half-written is left.
      Interrupted: SIGTERM or Ctrl-C; the step it stopped at is saved.
    """
    restarts = task.config.train.restarts
    if restarts and storage.in_bucket(folder):
        raise UserError(
            f"config.train.restarts={restarts}: in a bucket ({folder}) no run can be "
            "archived; take a --workdir of a file system, or restarts=0"
        )
    is_first = processes.is_first()
    with workdir_lock.held(folder) if is_first else contextlib.nullcontext():
        if is_first:
            workdir.finish_archiving(folder)
        processes.barrier()
        first = min(workdir.archived_runs(folder), restarts)
        for attempt in range(first, restarts + 1):
            with Session(task, folder, task.config.seed + attempt) as session:
                try:
                    loop(session)
                    baseline = session.finish()
                except Interrupted:
                    session.save_on_signal()
                    raise
            processes.barrier()
            if not collapsed(task, folder, baseline) or attempt == restarts:
                break
            processes.barrier()  # all have read what is moved now
            if is_first:
                workdir.archive(folder, attempt)
            processes.barrier()


def loop(run: Session) -> None:
    """Steps until the last one is taken, or dev scores do not rise any more.

    Where the order matters: an evaluation is of a state that is about to be left, so a
    run that goes on from it makes up for one that it missed; an anomaly is acted on
    before anything of its step is logged, saved or evaluated.

    Raises:
      Interrupted: a signal arrived; `run.state` is whole, after `run.now` steps.
    """
    task, due, clock, seeds = run.task, run.due, run.clock, run.seeds
    while True:
        run.heart.step = run.now
        if due.evaluation(run.now):
            run.evaluate()
        if run.now == due.num_steps or run.history.stops(task.config.train.early_stop):
            return

        batch = run.next_batch()
        update = run.compiled_step(batch)
        with clock("step"):
            run.state, metrics = update(run.state, batch, seeds.array)
            run.now += 1
            # One step runs while the next is put together, no more.
            goes_back = run.anomalies.add(run.now, metrics)
            if run.stop.signal_number or due.anything(run.now):
                goes_back = goes_back or run.anomalies.settle()
        if goes_back:
            run.go_back()
            continue
        run.speed.add(task, batch, seeds.count)
        run.progress.update(run.now)

        if due.log(run.now):
            run.write_metrics(metrics)
        if due.save(run.now):
            run.save()
        run.stop.check()
