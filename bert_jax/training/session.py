"""An open run: restores, evaluates, saves and closes it."""

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import jax
from jaxtyping import Array

from bert_jax.runtime import processes, signals, storage
from bert_jax.runtime.clock import Stopwatch
from bert_jax.runtime.terminal import Progress
from bert_jax.training import (
    anomaly,
    compilation,
    evaluator,
    history,
    report,
    setup,
    sharding,
)
from bert_jax.training.due import Due
from bert_jax.training.history import BestScore, Speed
from bert_jax.training.run_setup import RunSetup
from bert_jax.training.seeds import RunLog
from bert_jax.training.step import TrainState
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name

log = logging.getLogger(__name__)


class Session:
    """A run's `state` after `now` steps, and what the loop does with it.

    Entering claims the folder for this run and restores its newest checkpoint.

    Raises (when it is entered):
      UserError: what the user can fix; leaves no half-written file.
    """

    state: TrainState
    now: int
    counted: tuple[float, float]  # of the last batch, see `Task.counted`

    def __init__(self, setup: RunSetup):
        self._setup, self.task, self.folder = setup, setup.task, setup.folder
        self.seeds, self.learning_rates = setup.program.seeds, setup.learning_rates
        self.due = Due.of(setup.task.config, setup.data.epoch_size)
        self.clock = Stopwatch()

    def __enter__(self) -> "Session":
        self._claim()
        with contextlib.ExitStack() as stack:
            stack.enter_context(signals.deferred())
            resume_step = self._restore(stack)
            self._open_logs(stack, resume_step)
            self._prepare_steps()
            self._stack = stack.pop_all()
        for line in report.opening(self._setup, self.state, resume_step):
            self.progress.note(line)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _claim(self) -> None:
        """Writes config, vocabulary and data record to the folder."""
        task, data, is_first = self.task, self._setup.data, processes.is_first()
        for note in data.notes:
            log.info("%s", note)
        with processes.first_alone():
            workdir.claim(
                *(self.folder, task.config, task.tokenizer, data.record), write=is_first
            )
        if is_first and self._setup.weights is not None:
            path = self.folder / "init_from.json"
            storage.write_atomically(path, self._setup.weights[1].to_json())

    def _restore(self, stack: contextlib.ExitStack) -> int | None:
        """Sets `state` and `now`; gives the checkpoint's step, None for a new run."""
        config = self.task.config
        self._checkpoints = stack.enter_context(
            Checkpoints(
                self.folder,
                config.checkpoint.keep,
                keep_every=config.checkpoint.keep_every,
            )
        )
        self._checkpoints.check(self.due.num_steps)
        restored = self._newest()
        self.state, self.now = restored or (self._first_state(), 0)
        if processes.is_first():
            workdir.drop_best(self.folder, self.now if restored else -1)
        processes.barrier()
        self._best = None
        takes_best = checkpoint_name(config) == "best"
        scores_often = takes_best or self._setup.data.epoch_size
        if self.task.dev_splits and self.seeds.count == 1 and scores_often:
            self._best = stack.enter_context(Checkpoints(self.folder, 1, "best"))
        return self.now if restored else None

    def _open_logs(self, stack: contextlib.ExitStack, resume_step: int | None) -> None:
        is_first, config = processes.is_first(), self.task.config
        self.log = RunLog(self.seeds, self.folder, resume_step, is_first, config)
        stack.callback(self.log.close)
        processes.barrier()  # all read the log, once it is cut to the resume step
        self.history = BestScore(self.task, self.folder, self.task.dev_splits[:1])
        self.progress = Progress(self.due.num_steps, self.now, active=is_first)
        stack.callback(self.progress.close)
        self.speed = Speed(self.clock)
        self.anomalies = anomaly.Anomalies(
            config.train.on_anomaly == "stop",
            self.seeds.floats,
            self.log.anomaly,
            self.progress.note,
        )

    def _prepare_steps(self) -> None:
        task, program = self.task, self._setup.program
        self._evaluator = evaluator.Evaluator(
            task, self.seeds, program.mesh, self.clock
        )
        self._rows = sharding.local_rows(program.mesh, task.config.train.batch_size)
        self._batches = self.seeds.batches(task, self.now, self._rows)
        left = sum(phase.end_step > self.now for phase in task.phases())
        shapes = left * self._setup.data.lengths
        self._compiled = compilation.CompiledStep(
            program, self.clock, self.progress, shapes
        )

    def next_batch(self) -> dict[str, Array]:
        """The batch of the next step, on the devices."""
        with self.clock("data wait"):
            rows, phase = next(self._batches), self.task.phase_at(self.now)
            mesh, self.counted = self._setup.program.mesh, self.task.counted(rows)
            return sharding.place_batch(rows, mesh, phase.batch_size, self.seeds.count)

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
                line = report.one_line(
                    self.now, split, means, self.task.selection_score
                )
                self.progress.note(line)

    def write_metrics(self, metrics: dict[str, Array]) -> None:
        """Writes the last step's metrics and the speed since the previous line."""
        with self.clock("step"):
            each = self.seeds.floats(metrics)
        rates = self.speed.rates(history.peak_flops())
        means = self.log.write(self.now, "train", [one | rates for one in each])
        self.progress.log(self.now, means)

    def save(self) -> None:
        """Starts saving the state."""
        self.log.flush()  # a run that resumes here needs the lines before it
        with self.clock("checkpoint"):
            self._checkpoints.save(self.state.items(), self.now)

    def save_on_signal(self) -> None:
        """Saves the current state; only seconds may be left."""
        self.anomalies.check_last()
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
            abstract = self._setup.program.abstract.params
            best = self._best.restore_params(abstract)
            params, step_taken = best or (params, step_taken)
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
            *(self.task, self._setup.data.record, self.folder),
            *(self.state, self.now),
        )
        return baseline, step_taken

    def _newest(self) -> tuple[TrainState, int] | None:
        """The newest checkpoint's state and step."""
        abstract = self.seeds.abstract(self._setup.program.abstract)
        saved = self._checkpoints.restore(abstract.items())
        return saved and (abstract.restored(*saved), saved[1])

    def _first_state(self) -> TrainState:
        """The state before the first step, of all seeds."""
        state, weights = self._setup.program.first_state(), self._setup.weights
        if weights is None:
            return state._replace(params=self.task.start(state.params))
        from bert_jax.convert import merge

        return state._replace(params=merge.fill(weights[0], state.params))
