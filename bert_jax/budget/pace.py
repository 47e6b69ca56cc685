"""Measures how fast a run is on these devices, on a state that is thrown away."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from etils import epath

from bert_jax.errors import UserError
from bert_jax.runtime import processes, signals
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Phase, Task
from bert_jax.training import compilation, inference, memory, sharding
from bert_jax.workdir.checkpoint import Checkpoints

# The loader has read ahead while the step was compiled; these steps do not count.
WARM = 10
_CHUNK = 5  # steps between two looks at the clock
_SAVED = ".pace"  # the folder of the one checkpoint

Result = TypeVar("Result")


class Pace(NamedTuple):
    """Seconds that the parts of a run take, all seeds together."""

    steps: tuple[float, ...]  # a step of each phase, with the wait for its data
    compiling: float  # the first state, the steps and the evaluation, together
    evaluation: float  # of all dev splits, at the end
    checkpoint: float  # until it is on disk


def measure(task: Task, folder: Path, seconds: float, limit: float) -> Pace:
    """Takes steps of each phase, evaluates a few batches, saves once.

    All processes call it together.

    Args:
      task: its data is prepared; `config.train.num_steps` is more than is measured.
      folder: the work directory; it has a checkpoint for a moment.
      seconds: to measure each phase for, after `WARM` steps.
      limit: seconds that all of it may take.

    Raises:
      UserError: a mesh or a batch that does not fit; `limit` has passed.
      Interrupted: a signal arrived.
    """
    with signals.deferred():
        trial = _Trial(task, limit)
        steps = tuple(trial.step(phase, seconds) for phase in task.phases())
        evaluation = sum(map(trial.evaluation, task.dev_splits))
        checkpoint = trial.checkpoint(folder)
        return Pace(steps, trial.compiling, evaluation, checkpoint)


class _Trial:
    """A state of the run's shape, and the steps it has taken."""

    def __init__(self, task: Task, limit: float):
        config = task.config
        self._began, self._limit = time.perf_counter(), limit
        self._task, self.compiling = task, 0.0
        self._mesh = sharding.make_mesh(config)
        memory.require(config, trains=True)
        self._program = compilation.Program(task, self._mesh, config.seed)
        self._seeds = self._program.seeds
        self._state = self._compiled(self._program.first_state)

    def step(self, phase: Phase, seconds: float) -> float:
        """Seconds of one step of a phase, measured for so many seconds."""
        batches = self._batches(phase)
        batch = next(batches)
        traced = functools.partial(self._program.trace, self._state, batch)
        step = self._compiled(lambda: traced(phase.micro_batches).lower().compile())
        self._steps(step, batches, seconds, WARM)
        return self._steps(step, batches, seconds)

    def evaluation(self, split: str) -> float:
        """Seconds that a split takes, from one of its batches."""
        task, size = self._task, self._task.config.evaluate.batch_size
        params = self._seeds.split(self._state.params)[0]
        rows = sharding.local_rows(self._mesh, size)
        last = task.config.train.num_steps
        batches = task.evaluation_batches(split, last, rows)
        batch = sharding.place_batch(next(batches), self._mesh, size)
        outputs = self._compiled(
            lambda: (
                inference.trace_outputs(task.outputs, self._mesh, params, batch)
                .lower()
                .compile()
            )
        )
        jax.block_until_ready(outputs(params, batch))
        start = time.perf_counter()
        jax.block_until_ready(outputs(params, batch))
        each = time.perf_counter() - start
        start = time.perf_counter()
        count = 1
        for _ in batches:
            count += 1
            self._require_time()
        reading = time.perf_counter() - start
        return self._seeds.count * (count * each + reading)

    def checkpoint(self, folder: Path) -> float:
        """Seconds until the state is saved in a folder, which then is gone."""
        self._remove(folder)  # what a killed start has left would not be saved again
        start = time.perf_counter()
        with Checkpoints(folder, 1, _SAVED) as checkpoints:
            checkpoints.save(self._state.items(), 0)
            checkpoints.wait()
        taken = time.perf_counter() - start
        self._remove(folder)
        return taken

    def _remove(self, folder: Path) -> None:
        processes.barrier()
        if processes.is_first():
            epath.Path(folder / _SAVED).rmtree(missing_ok=True)
        processes.barrier()

    def _batches(self, phase: Phase) -> Iterator[dict[str, jax.Array]]:
        task, count = self._task, self._seeds.count
        rows = sharding.local_rows(self._mesh, task.config.train.batch_size)
        for batch in self._seeds.batches(task, phase.first_step, rows):
            yield sharding.place_batch(batch, self._mesh, phase.batch_size, count)

    def _steps(
        self, step: Callable, batches: Iterator, seconds: float, most: int | None = None
    ) -> float:
        """Takes steps for so many seconds, or `most` steps; gives seconds of a step."""
        start, taken = time.perf_counter(), 0
        while True:
            for _ in range(_CHUNK):
                self._state, metrics = step(
                    self._state, next(batches), self._seeds.array, np.float32(0.0)
                )
                jax.block_until_ready(metrics)
                taken += 1
                self._require_time()
            signals.check()
            spent = time.perf_counter() - start
            # All processes must take the same steps.
            if not processes.all_true(spent < seconds) or taken == most:
                return spent / taken

    def _compiled(self, make: Callable[[], Result]) -> Result:
        """Calls a function that compiles; adds its time to `compiling`."""
        start = time.perf_counter()
        made = make()
        jax.block_until_ready(made)
        self.compiling += time.perf_counter() - start
        self._require_time()
        return made

    def _require_time(self) -> None:
        spent = time.perf_counter() - self._began
        if spent > self._limit:
            raise UserError(
                f"config.train.budget={self._task.config.train.budget}: too little: "
                f"measuring the pace alone has taken {spent:,.0f} s, "
                f"{self.compiling:,.0f} s of them compiling, and has not ended; give "
                "several times as much, or set --config.train.num_steps instead"
            )
