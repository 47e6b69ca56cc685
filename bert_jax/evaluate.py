"""Exact evaluation, prediction files and prediction, for every task."""

import contextlib
import functools
import io
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import (
    asked,
    initial,
    metrics,
    processes,
    sharding,
    signals,
    step,
    storage,
    workdir,
)
from bert_jax.checkpoint import has_checkpoint
from bert_jax.seeds import Log, Seeds
from bert_jax.storage import Path
from bert_jax.tasks.task import Ask, Batch, Outputs, Step, Task

log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates parameters on a split; compiled once for each shape of a batch."""

    def __init__(
        self,
        task: Task,
        seeds: Seeds,
        mesh: Mesh,
        stop: signals.Stop,
        clock: metrics.Stopwatch,
        *,
        learns: bool = True,
    ):
        """Takes what a run has.

        Args:
          learns: `task.facts` are set by the first dev split's results.
        """
        self.task, self.mesh, self.seeds, self.clock = task, mesh, seeds, clock
        self._learns = learns
        self._stop = stop
        self._compiled: dict[tuple, Callable] = {}
        self._kept: tuple[int, dict[str, list[Any]]] = (-1, {})

    def numbers(self, params: Any, split: str, now: int) -> list[dict[str, float]]:
        """Each seed's scores on a split, after `now` steps; see `results`."""
        results = self.results(params, split, now)
        return [self.score(split, result) for result in results]

    def score(self, split: str, result: Any) -> dict[str, float]:
        """The scores of one seed's results, by which `task.facts` are set first."""
        if self._learns and split in self.task.dev_splits[:1]:
            self.task.learn(split, result)
        return self.task.numbers(split, result)

    def results(self, params: Any, split: str, now: int) -> list[Any]:
        """Each seed's results for every record of a split, in the records' order.

        Those of the last `now` are kept.

        Raises:
          Interrupted: a signal arrived between two batches or during compilation.
        """
        if self._kept[0] != now:
            self._kept = (now, {})
        if split not in self._kept[1]:
            each = self.seeds.split(params)
            self._kept[1][split] = [self._evaluate(one, split, now) for one in each]
        return self._kept[1][split]

    def _evaluate(self, params: Any, split: str, now: int) -> Any:
        size = self.task.config.evaluate.batch_size
        rows = sharding.local_rows(self.mesh, size)
        fetched: list[Any] = []
        ahead: Any = None
        for batch in self.task.evaluation_batches(split, now, rows):
            placed = sharding.place_batch(batch, self.mesh, size)
            shapes = tuple((name, rows.shape) for name, rows in placed.items())
            if shapes not in self._compiled:
                with self.clock("compile"):
                    self._compiled[shapes] = self._compile(params, placed)
            with self.clock("evaluation"):
                # One batch is computed while the one before it is fetched.
                outputs = self._compiled[shapes](params, placed)
                if ahead is not None:
                    fetched.append(jax.device_get(ahead))
                ahead = outputs
            self._stop.check()
        with self.clock("evaluation"):
            fetched.append(jax.device_get(ahead))
            return self.task.collect(split, fetched)

    def _compile(self, params: Any, batch: step.Batch) -> Callable:
        jitted = jax.jit(
            self.task.outputs, out_shardings=sharding.replicated(self.mesh)
        )

        def compile_step() -> Callable:
            with sharding.activate(self.mesh):
                return jitted.lower(params, batch).compile()

        return signals.run_interruptibly(compile_step, self._stop)


def evaluate(task: Task, folder: Path) -> None:
    """Evaluates a checkpoint on each split, prints the scores as JSON, a line each, and
    writes the prediction files.

    The files of other data than the run's, or of another checkpoint, go to a folder of
    their own in `predictions`. What is learnt by the dev split (SQuAD's threshold) is
    the run's: it is fitted here only where the run has not done it for this checkpoint.
    """
    is_run = has_checkpoint(folder)
    name = asked.beside(folder, task.config) if is_run else ""
    predictions = folder / "predictions" / name if name else folder / "predictions"
    task.recall(workdir.read_data(folder) if is_run else {})
    with initial.restored(task, folder, task.unused, uses=("evaluate",)) as found:
        mesh, params, now, _ = found
        stop, clock = signals.Stop(), metrics.Stopwatch()
        other_data = name not in ("", task.config.evaluate.checkpoint)
        learns = is_run and not other_data and not task.facts
        evaluator = Evaluator(
            task, Seeds.single(task.config), mesh, stop, clock, learns=learns
        )
        for split in task.splits:
            (numbers,) = evaluator.numbers(params, split, now)
            if not processes.is_first():
                continue
            print(json.dumps({"step": now, "split": split, **numbers}))
            (results,) = evaluator.results(params, split, now)
            task.write_predictions(predictions, split, results)
        if learns and processes.is_first():
            workdir.write_facts(folder, task.facts, now)
    if predictions.is_dir() and processes.is_first():
        log.info("predictions: %s", predictions)


def close(evaluator: Evaluator, folder: Path, params: Any, now: int, log: Log) -> None:
    """Ends a run: every split's scores, printed, and its prediction files."""
    task, seeds = evaluator.task, evaluator.seeds
    folders = [path / "predictions" for path in seeds.folders(folder)]
    for split in task.splits:
        results = evaluator.results(params, split, now)
        each = []
        for own, result in zip(folders, results, strict=True):
            each.append(evaluator.score(split, result))
            if processes.is_first():
                task.write_predictions(own, split, result)
                workdir.write_facts(own.parent, task.facts, now)
        if each[0]:
            means = seeds.means(split, each)
            if not log.has(now, split):
                log.write(now, split, each)
            if processes.is_first():
                print(f"\n{split} at step {now}")
                print(metrics.table(*task.summary_table(split, means)))
    if processes.is_first():
        totals = evaluator.clock.totals()
        spent = [(name, f"{seconds:.1f}") for name, seconds in totals.items()]
        print("\n" + metrics.table(spent, ("time", "seconds")))
    for own, one in zip(folders, seeds.split(params), strict=True):
        with _unless_first_unseen(own) as place:
            run = functools.partial(_asking_few, params=one, mesh=evaluator.mesh)
            task.show(place, run)
    written = [str(own) for own in folders if own.is_dir()]
    if written and processes.is_first():
        print(f"\npredictions: {', '.join(written)}")


@contextlib.contextmanager
def _unless_first_unseen(folder: Path) -> Iterator[Path]:
    """Gives process 0 the folder; the others, who have their part in what is computed,
    one that vanishes, and no standard output."""
    if processes.is_first():
        yield folder
        return
    with (
        tempfile.TemporaryDirectory() as gone,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        yield storage.path(gone)


def one_line(now: int, split: str, numbers: dict[str, float]) -> str:
    """An evaluation for the progress log."""
    shown = (f"{name} {value:.4g}" for name, value in numbers.items())
    return f"step {now} {split}: {', '.join(shown)}"


def _asking_few(function: Step, params: Any, mesh: Mesh) -> Ask:
    return asking(function, params, mesh, sharding.batch_multiple(mesh, 4))


def asking(function: Step, params: Any, mesh: Mesh, size: int) -> Ask:
    """Compiles a function of (params, batch); gives one of up to `size` rows."""
    run = jax.jit(function, out_shardings=sharding.replicated(mesh))
    own = sharding.local_rows(mesh, size)

    def ask(rows: Batch) -> Outputs:
        count = len(rows["input_ids"])
        padded = {
            name: np.pad(
                column, [(0, size - count)] + [(0, 0)] * (column.ndim - 1), mode="edge"
            )[own]
            for name, column in rows.items()
        }
        with sharding.activate(mesh):
            outputs = run(params, sharding.place_batch(padded, mesh, size))
        return {
            name: column[:count] for name, column in jax.device_get(outputs).items()
        }

    return ask
