"""Exact evaluation, prediction files and prediction, for every task."""

import contextlib
import functools
import io
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import (
    initial,
    metrics,
    optimizer,
    processes,
    sharding,
    signals,
    step,
    storage,
    tokenization,
    workdir,
)
from bert_jax.checkpoint import Checkpoints, checkpoint_name, has_checkpoint
from bert_jax.errors import UserError
from bert_jax.seeds import Log, Seeds
from bert_jax.storage import Path
from bert_jax.tasks.task import Ask, Batch, Outputs, Step, Task


class Evaluator:
    """Evaluates parameters on a split; compiled once for each shape of a batch."""

    def __init__(
        self,
        task: Task,
        seeds: Seeds,
        mesh: Mesh,
        stop: signals.Stop,
        clock: metrics.Stopwatch,
    ):
        self.task, self.mesh, self.seeds, self.clock = task, mesh, seeds, clock
        self._stop = stop
        self._compiled: dict[tuple, Callable] = {}
        self._kept: tuple[int, dict[str, list[Any]]] = (-1, {})

    def numbers(self, params: Any, split: str, now: int) -> list[dict[str, float]]:
        """Each seed's scores on a split, after `now` steps; see `results`."""
        results = self.results(params, split, now)
        return [self.task.numbers(split, result) for result in results]

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
    writes the prediction files."""
    with _restored(task, folder) as (mesh, params, now):
        if has_checkpoint(folder):
            workdir.check_vocabulary(folder, task.tokenizer)
        stop, clock = signals.Stop(), metrics.Stopwatch()
        evaluator = Evaluator(task, Seeds.single(task.config), mesh, stop, clock)
        for split in task.splits:
            (numbers,) = evaluator.numbers(params, split, now)
            if not processes.is_first():
                continue
            print(json.dumps({"step": now, "split": split, **numbers}))
            (results,) = evaluator.results(params, split, now)
            task.write_predictions(folder / "predictions", split, results)


def close(evaluator: Evaluator, folder: Path, params: Any, now: int, log: Log) -> None:
    """Ends a run: every split's scores, printed, and its prediction files."""
    task, seeds = evaluator.task, evaluator.seeds
    folders = [path / "predictions" for path in seeds.folders(folder)]
    for split in task.splits:
        results = evaluator.results(params, split, now)
        each = []
        for own, result in zip(folders, results, strict=True):
            each.append(task.numbers(split, result))
            if processes.is_first():
                task.write_predictions(own, split, result)
                workdir.write_facts(own.parent, task.facts)
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


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads JSON lines and writes JSON lines, in the same order.

    Args:
      folder: the work directory, whose checkpoint is asked.
      source: a file, or `-` for standard input.
      target: a file, written whole or not at all, or `-` for standard output.
    """
    with (
        _lines(source) as lines,
        _restored(task, folder) as (mesh, params, _),
        _output(target) as output,
    ):
        # The run's own: its text may be gone by now.
        path = folder / "tokenizer.json"
        own = tokenization.load(path) if has_checkpoint(folder) else task.tokenizer
        predictor = task.predictor(own)
        size = sharding.batch_multiple(mesh, task.config.predict.batch_size)
        ask = asking(predictor.step, params, mesh, size)
        rows = (_row(line, where, predictor.parse) for where, line in lines)
        for some in iter(lambda: list(itertools.islice(rows, size)), []):
            answers = predictor.answer([parsed for _, parsed in some], ask, size)
            for (row, _), answer in zip(some, answers, strict=True):
                output.write(json.dumps({**row, **answer}, ensure_ascii=False) + "\n")
            output.flush()


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


@contextlib.contextmanager
def _restored(task: Task, folder: Path) -> Iterator[tuple[Mesh, Any, int]]:
    """The mesh, and the checkpoint's parameters and step."""
    config = task.config
    mesh = sharding.make_mesh(config)
    abstract = sharding.abstract_state(task.init_params, optimizer.make(config), mesh)
    if not has_checkpoint(folder):
        begun = initial.read(task, abstract.params)
        if begun is None:
            raise UserError(
                f"--workdir={folder}: no checkpoint there; train one first, or name "
                "weights with --config.init_from"
            )
        yield mesh, initial.whole(*begun), 0
        return
    workdir.check(folder, config, only=workdir.MODEL_FIELDS)
    with Checkpoints(folder, 1, checkpoint_name(config)) as saved:
        restored = saved.restore_params(abstract.params)
        if restored is None:
            raise UserError(
                f"--workdir={folder}: the run kept no checkpoint as its best; set "
                "--config.evaluate.checkpoint=last"
            )
        yield mesh, *restored


def _row(line: str, where: str, parse: Callable) -> tuple[dict[str, Any], Any]:
    """A line of the input, as it is and as the task understands it."""
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON in UTF-8: {error}") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is wanted")
    try:
        return row, parse(row)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


@contextlib.contextmanager
def _lines(source: str) -> Iterator[Iterable[tuple[str, str]]]:
    """(place, line) of each line that is not empty."""

    def numbered(file: Iterable[bytes], name: str) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise UserError(f"{name}:{number}: not UTF-8: {error}") from error
            if text:
                yield f"{name}:{number}", text

    if source == "-":
        yield numbered(sys.stdin.buffer, "standard input")
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(storage.reading(storage.path(source)))
        except (FileNotFoundError, IsADirectoryError) as error:
            raise UserError(f"--input={source}: no such file") from error
        yield numbered(file, source)


@contextlib.contextmanager
def _output(target: str) -> Iterator[TextIO]:
    if not processes.is_first():  # they have their part in what is computed
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    if target == "-":
        yield sys.stdout
        return
    with storage.replacing(storage.output(target)) as file:
        yield file
