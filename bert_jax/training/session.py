"""Opens a run from its config and folder; saves, evaluates and closes it."""

import contextlib
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from bert_jax.data.rows import RowIndex
from bert_jax.errors import UserError
from bert_jax.runtime import processes, signals, storage
from bert_jax.runtime.clock import Stopwatch
from bert_jax.runtime.heartbeat import Heartbeat
from bert_jax.runtime.storage import Path
from bert_jax.runtime.terminal import Progress, table
from bert_jax.tasks.task import Task
from bert_jax.training import (
    anomaly,
    compilation,
    evaluator,
    memory,
    report,
    setup,
    sharding,
    state_shardings,
    step,
)
from bert_jax.training import optimizer as optimizers
from bert_jax.training.due import Due
from bert_jax.training.history import BestScore, Speed, require_dev
from bert_jax.training.seeds import RunLog, Seeds
from bert_jax.types import DeviceBatch
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name, has_checkpoint

log = logging.getLogger(__name__)


class Session:
    """An open run: its `state` after `now` steps, and what the loop needs.

    Args:
      task: its config is resolved.
      folder: the work directory.
      first_seed: the first of `config.train.seeds`.

    Raises (here and in `__enter__`):
      UserError: what the user can fix; leaves no half-written file.
    """

    state: step.TrainState
    now: int
    learning_rates: Float[np.ndarray, " steps"]
    anomalies: anomaly.Anomalies
    counted: tuple[float, float]  # of the last batch, see `Task.counted`
    _rows: RowIndex

    def __init__(self, task: Task, folder: Path, first_seed: int):
        self.task, self.folder = task, folder
        config = task.config
        anomaly.check(config, processes.count())
        self.seeds = Seeds(config, first_seed)
        self.mesh = sharding.make_mesh(config)
        memory.require(config, trains=True)
        self._optimizer = optimizers.make(config, task.unused())
        self.learning_rates = optimizers.learning_rates(config)
        self._abstract = state_shardings.abstract_state(
            *(task.init_params, self._optimizer, self.mesh),
            config.mesh.optimizer,
            task.init_carry,
        )
        self._steps_before = workdir.check(folder, config)
        is_new = not has_checkpoint(folder)
        self._weights = self._read_weights() if is_new else None
        self._claim(is_new)
        self.due = Due.of(config, self._data.epoch_size)
        self.clock = Stopwatch()

    def __enter__(self) -> "Session":
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        self._introduce()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def next_batch(self) -> dict[str, Array]:
        """The batch of the next step, on the devices; a signal ends the wait."""
        with self.clock("data wait"), self.stop.at_once():
            rows, phase = next(self._batches), self.task.phase_at(self.now)
            size, self.counted = phase.batch_size, self.task.counted(rows)
            return sharding.place_batch(rows, self.mesh, size, self.seeds.count)

    def compiled_step(self, batch: dict[str, Array]) -> jax.stages.Compiled:
        """(state, batch, seeds, its rate) -> (state, metrics), for these shapes."""
        micro_batches = self.task.phase_at(self.now).micro_batches
        return self._compiled.for_batch(self.state, batch, micro_batches)

    def evaluate(self) -> None:
        """Evaluates the dev splits that lack scores at this step; saves the best."""
        # The first split's line is written last: it marks the evaluation complete.
        dev = self.task.dev_splits
        for split in reversed(dev):
            if self.log.has(self.now, split):
                continue
            self.progress.note(f"evaluating {split} at step {self.now}")
            scores = self._evaluator.scores(self.state.params, split, self.now)
            better = split == dev[0] and self.history.add(self.now, scores[0])
            if better and self._best is not None:
                self._best.save_params(self.state.params, self.now)
                self._best.wait()  # must be saved before its line is written
            means = self.log.write(self.now, split, scores)
            self.progress.tell(self.task.notices)
            if self.now < self.due.num_steps:  # else a table follows
                line = report.one_line(self.now, split, means, self.task.main_score)
                self.progress.note(line)

    def write_metrics(self, metrics: dict[str, Array]) -> None:
        """Writes the last step's metrics and the speed since the previous line."""
        with self.clock("step"):
            each = self.seeds.floats(metrics)
        rates = self.speed.rates(sharding.peak_flops())
        means = self.log.write(self.now, "train", [one | rates for one in each])
        self.progress.log(self.now, means)

    def save(self) -> None:
        """Starts saving the state."""
        self.log.flush()  # a run that resumes here needs the lines before it
        with self.clock("checkpoint"):
            self._checkpoints.save(self.state.items(), self.now)

    def go_back(self) -> None:
        """Rolls back to the newest good checkpoint; resumes after the last anomaly."""
        self.now = self.anomalies.step
        self.progress.note(f"rolled back; resuming at step {self.now}")
        with self.clock("checkpoint"):
            # Holding both states would need twice the memory.
            jax.tree.map(lambda x: x.delete(), self.state)
            self._checkpoints.drop(self.now - 1)  # the anomaly came right after it
            # Reads the weights again: the first state's arrays are deleted.
            good, _ = self._newest() or (self._first_state(self._read_weights()), 0)
            self.state = self.anomalies.leave_out(good)
        self.save()
        self._batches = self.seeds.batches(self.task, self.now, self._rows)

    def save_on_signal(self) -> None:
        """Saves the current state; only seconds may be left."""
        if self.anomalies.check_last():
            self.go_back()
        self.progress.note(f"stopping: saving step {self.now} of {self.due.num_steps}")
        with self.clock("checkpoint"):
            self._checkpoints.save(self.state.items(), self.now)
            self.log.flush()
            self._checkpoints.wait()
        self.progress.note(
            f"saved step {self.now}; the same command resumes from there"
        )

    def finish(self) -> tuple[Mapping[str, float], int]:
        """Saves the last state, evaluates the run's final weights, reports.

        Returns:
          The baseline's scores on the first dev split; the step of these weights.
        """
        self.save()
        with self.clock("checkpoint"):
            self._checkpoints.wait()
        params, step_taken = self.state.params, self.now
        if self._best is not None and checkpoint_name(self.task.config) == "best":
            found = self._best.restore_params(self._abstract.params)
            params, step_taken = found or (params, step_taken)
        if self.now < self.due.num_steps:
            kept = self._best is not None
            self.progress.note(self.history.early_stop(self.now, step_taken, kept))
        self.progress.close()
        baseline = report.close(
            *(self._evaluator, self.folder, params, step_taken, self.log),
            self.progress.tell,
        )
        self.log.finished = True
        self.seeds.close(
            self.task, self._data.record, self.folder, self.state, self.now
        )
        return baseline, step_taken

    def _read_weights(self) -> tuple[Any, Any] | None:
        return setup.init_weights(self.task, self._abstract.params)

    def _claim(self, is_new: bool) -> None:
        """Prepares the data, and claims the folder for this run."""
        task, folder = self.task, self.folder
        task.recall(workdir.read_data(folder))
        with processes.first_alone():
            self._data = task.training_data()
            require_dev(task)
        for note in self._data.notes:
            log.info("%s", note)
        record, is_first = self._data.record, processes.is_first()
        processes.check_same("the prepared data", record)
        self._require_growth(is_new)
        with processes.first_alone():
            workdir.claim(folder, task.config, task.tokenizer, record, write=is_first)

    def _require_growth(self, is_new: bool) -> None:
        """Raises UserError if a run is to grow whose dev scores no longer do."""
        task, train = self.task, self.task.config.train
        if is_new or self._steps_before >= train.num_steps:
            return
        if BestScore(task, self.folder, task.dev_splits[:1]).stops(train.early_stop):
            raise UserError(
                f"config.train.extend=True: the run in {self.folder} stopped early, "
                "because its dev scores no longer improved, and would again; to train "
                "on, start another --workdir from it: "
                f"--config.init_from={self.folder}"
            )

    def _open(self, stack: contextlib.ExitStack) -> None:
        task, folder, config = self.task, self.folder, self.task.config
        self.stop = stack.enter_context(signals.deferred(processes.stop()))
        stall, index = config.train.stall_seconds, jax.process_index()
        self.heart = stack.enter_context(Heartbeat(folder, self.clock, stall, index))
        keep, every = config.checkpoint.keep, config.checkpoint.keep_every
        self._checkpoints = Checkpoints(folder, keep, keep_every=every)
        stack.enter_context(self._checkpoints)
        self._checkpoints.check(self.due.num_steps)
        restored, is_first = self._newest(), processes.is_first()
        self.state, self.now = restored or (self._first_state(self._weights), 0)
        self._resumes = restored is not None
        resume_step = self.now if self._resumes else None
        if is_first:
            workdir.drop_best(folder, -1 if resume_step is None else resume_step)
        processes.barrier()
        dev = task.dev_splits
        takes_best = checkpoint_name(config) == "best"
        self._best = None
        if dev and self.seeds.count == 1 and (takes_best or self._data.epoch_size):
            self._best = stack.enter_context(Checkpoints(folder, 1, "best"))
        self.log = RunLog(self.seeds, folder, resume_step, is_first, config)
        stack.callback(self.log.close)
        processes.barrier()  # all read the log, once it is cut to the resume step
        self.history = BestScore(task, folder, dev[:1])
        self.progress = Progress(self.due.num_steps, self.now, active=is_first)
        stack.callback(self.progress.close)
        self.anomalies = anomaly.Anomalies(
            config.train.on_anomaly,
            self.seeds.floats,
            self.log.anomaly,
            self.progress.note,
        )
        self._evaluator = evaluator.Evaluator(
            task, self.seeds, self.mesh, self.stop, self.clock
        )
        self._rows = sharding.local_rows(self.mesh, config.train.batch_size)
        self._batches = self.seeds.batches(task, self.now, self._rows)
        left = sum(phase.end_step > self.now for phase in task.phases())
        self._compiled = compilation.CompiledStep(
            self._trace,
            self.stop,
            self.clock,
            self.progress,
            task.notices,
            left * self._data.lengths,
        )
        self.speed = Speed(self.clock)

    def _introduce(self) -> None:
        """Prints what the run starts with."""
        note = self.progress.note
        for line in report.opening(
            self.task, self.folder, self.state, self.mesh, self._data.fit
        ):
            note(line)
        if self._resumes:
            note(f"resuming at step {self.now} of {self.due.num_steps}")
            if self._steps_before < self.due.num_steps:
                note(
                    f"the run had {self._steps_before} steps; the learning rate now "
                    f"follows the schedule of {self.due.num_steps}"
                )
        elif self._weights is not None:
            merged = self._weights[1]
            note(f"from {self.task.config.init_from}:\n{table(*merged.table())}")
            if processes.is_first():
                path = self.folder / "init_from.json"
                storage.write_atomically(path, merged.to_json())

    def _newest(self) -> tuple[step.TrainState, int] | None:
        abstract = self.seeds.abstract(self._abstract)
        found = self._checkpoints.restore(abstract.items())
        return found and (abstract.restored(*found), found[1])

    def _first_state(self, weights: tuple[Any, Any] | None) -> step.TrainState:
        """The state before the first step, of all seeds."""
        state = compilation.first_state(
            self.task, self.seeds, self._optimizer, self._abstract
        )
        if weights is None:
            return state._replace(params=self.task.start(state.params))
        from bert_jax.convert import merge

        return state._replace(params=merge.fill(weights[0], state.params))

    def _trace(
        self, state: step.TrainState, batch: DeviceBatch, micro_batches: int
    ) -> jax.stages.Traced:
        return compilation.trace_step(
            self.task, self.seeds, self.mesh, state, batch, micro_batches
        )
