"""Evaluation that counts every example once, prediction, and the closing report."""

import contextlib
import functools
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import (
    initial,
    metrics,
    optimizer,
    sharding,
    signals,
    step,
    tasks,
    tokenization,
    workdir,
)
from bert_jax.checkpoint import Checkpoints, has_checkpoint
from bert_jax.data import loader
from bert_jax.errors import UserError

EXAMPLES = 3  # held-out sentences in the report


class Evaluator:
    """Evaluates parameters on the dev split; compiled once for each batch shape."""

    def __init__(
        self,
        config: ConfigDict,
        task: Any,
        mesh: Mesh,
        stop: signals.Stop,
        clock: metrics.Stopwatch,
    ):
        self._config, self._task, self._mesh = config, task, mesh
        self._stop, self._clock = stop, clock
        self._compiled: dict[loader.Phase, Callable] = {}

    def __call__(self, params: Any, now: int) -> dict[str, float]:
        """The dev split's numbers, at the sequence length that step `now` ended with.

        Raises:
          Interrupted: a signal arrived between two batches or during compilation.
        """
        config, size = self._config, self._config.evaluate.batch_size
        phase = loader.phase_at(config, max(now - 1, 0))
        rows = sharding.local_rows(self._mesh, size)
        dataset = loader.dataset(config, phase, "dev", rows)
        batches = (
            sharding.place_batch(batch, self._mesh, size)
            for batch in dataset.to_iter_dataset()
        )
        with self._clock("evaluation"):
            first = next(batches)
        if phase not in self._compiled:
            with self._clock("compile"):
                self._compiled[phase] = self._compile(params, first)
        sums = []
        with self._clock("evaluation"):
            for batch in itertools.chain([first], batches):
                sums.append(self._compiled[phase](params, batch))
                # Bounds what is under way on the device.
                jax.block_until_ready(sums[-2:-1])
                self._stop.check()
            return self._task.summarise(_means(sums))

    def _compile(self, params: Any, batch: step.Batch) -> Callable:
        jitted = jax.jit(
            functools.partial(step.eval_step, metrics=self._task.metrics),
            out_shardings=sharding.replicated(self._mesh),
        )

        def compile_step() -> Callable:
            with sharding.activate(self._mesh):
                return jitted.lower(params, batch).compile()

        return signals.run_interruptibly(compile_step, self._stop)


def evaluate(config: ConfigDict, folder: Path) -> None:
    """Evaluates the newest checkpoint and prints the numbers as JSON."""
    with _restored(config, folder) as (task, mesh, params, now):
        workdir.check_vocabulary(folder, task.tokenizer)
        stop, clock = signals.Stop(), metrics.Stopwatch()
        numbers = Evaluator(config, task, mesh, stop, clock)(params, now)
    print(json.dumps({"step": now, "split": "dev", **numbers}))


def predict(config: ConfigDict, folder: Path, source: str, target: str) -> None:
    """Reads JSON lines and writes JSON lines, in the same order.

    Args:
      folder: the work directory, whose newest checkpoint is asked.
      source: a file, or `-` for standard input.
      target: a file, written whole or not at all, or `-` for standard output.
    """
    with (
        _lines(source) as lines,
        _restored(config, folder) as (task, mesh, params, _),
        _output(target) as output,
    ):
        # The run's own: its text may be gone by now.
        path = folder / "tokenizer.json"
        own = tokenization.load(path) if has_checkpoint(folder) else task.tokenizer
        predictor = task.predictor(own)
        run = jax.jit(predictor.step)
        size = sharding.batch_multiple(mesh, config.predict.batch_size)
        rows = (predictor.read_row(line, where) for where, line in lines)
        for some in iter(lambda: list(itertools.islice(rows, size)), []):
            features = predictor.features(some)
            outputs = _run_padded(run, params, features, mesh, size)
            for result in predictor.results(some, outputs):
                output.write(json.dumps(result, ensure_ascii=False) + "\n")
            output.flush()


def one_line(now: int, numbers: dict[str, float]) -> str:
    """An evaluation for the progress log."""
    shown = (f"{name} {value:.4g}" for name, value in numbers.items())
    return f"step {now} dev: {', '.join(shown)}"


def report(
    config: ConfigDict,
    task: Any,
    folder: Path,
    params: Any,
    mesh: Mesh,
    clock: metrics.Stopwatch,
) -> None:
    """Prints what the run reached, what it spent and a few guesses, which it keeps in
    predictions/dev.jsonl too."""
    numbers = metrics.read(folder, "dev")[-1]
    print(f"\nheld-out text at step {numbers['step']}")
    print(metrics.table(*task.summary_table(numbers)))
    totals = clock.totals()
    spent = [(name, f"{seconds:.1f}") for name, seconds in totals.items()]
    print("\n" + metrics.table(spent, ("time", "seconds")))

    predictor = task.predictor(task.tokenizer)
    features, wanted = predictor.examples(EXAMPLES)
    run = jax.jit(predictor.step)
    size = sharding.batch_multiple(mesh, EXAMPLES)
    outputs = _run_padded(run, params, features, mesh, size)
    rows = predictor.show(features, wanted, outputs)
    print("\na few held-out sentences, what stood at [MASK], and the guesses")
    for row in rows:
        print(f"\n  {row['text']}")
        for mask in row["masks"]:
            guesses = "  ".join(
                f"{g['token']} {g['probability']:.0%}" for g in mask["guesses"]
            )
            print(f"    {mask['wanted']:<16} {guesses}")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    workdir.write_atomically(folder / "predictions" / "dev.jsonl", lines)


@contextlib.contextmanager
def _restored(config: ConfigDict, folder: Path) -> Iterator[tuple[Any, Mesh, Any, int]]:
    """The task, the mesh, and the newest checkpoint's parameters and step."""
    task = tasks.create(config)
    mesh = sharding.make_mesh(config)
    abstract = sharding.abstract_state(task.init_params, optimizer.make(config), mesh)
    if not has_checkpoint(folder):
        begun = initial.read(config, task, abstract.params)
        if begun is None:
            raise UserError(
                f"--workdir={folder}: no checkpoint there; train one first, or name "
                "weights with --config.init_from"
            )
        yield task, mesh, initial.whole(*begun), 0
        return
    workdir.check(folder, config)
    with Checkpoints(folder, config.checkpoint.keep) as saved:
        restored = saved.restore_params(abstract.params)
        assert restored is not None
        yield task, mesh, *restored


def _means(sums: list[step.Sums]) -> dict[str, float]:
    """Adds the batches' sums and weights in double precision, and divides once."""
    fetched = jax.device_get(sums)
    return {
        name: math.fsum(float(batch[name][0]) for batch in fetched)
        / max(math.fsum(float(batch[name][1]) for batch in fetched), 1e-6)
        for name in fetched[0]
    }


def _run_padded(
    run: Callable, params: Any, features: dict[str, np.ndarray], mesh: Mesh, size: int
) -> dict[str, np.ndarray]:
    """Runs on a batch filled up to `size` rows with copies of its last one."""
    count = len(features["input_ids"])
    padded = {
        name: np.pad(rows, ((0, size - count), (0, 0)), mode="edge")
        for name, rows in features.items()
    }
    with sharding.activate(mesh):
        outputs = run(params, sharding.place_batch(padded, mesh, size))
    return jax.device_get(outputs)


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
    if not Path(source).is_file():
        raise UserError(f"--input={source}: no such file")
    with Path(source).open("rb") as file:
        yield numbered(file, source)


@contextlib.contextmanager
def _output(target: str) -> Iterator[TextIO]:
    if target == "-":
        yield sys.stdout
        return
    path = Path(target)
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"--output={target}: not a file in a folder that exists")
    with workdir.replacing(path) as file:
        yield file
