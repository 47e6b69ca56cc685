"""`--mode=predict`: JSON lines in, JSON lines out."""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from bert_jax.errors import UserError
from bert_jax.runtime import outside, processes, storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
from bert_jax.training import initial, sharding
from bert_jax.training.evaluator import asking


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads JSON lines and writes JSON lines, in the same order.

    Args:
      folder: the work directory with the checkpoint.
      source: a file, or `-` for standard input.
      target: a file, written completely or not at all, or `-` for standard output.
    """
    with (
        _lines(source) as lines,
        initial.restored(task, folder, task.unused(predicts=True)) as found,
        _output(target) as output,
    ):
        predictor = task.predictor(found.missing)
        size = sharding.batch_multiple(found.mesh, task.config.predict.batch_size)
        ask = asking(predictor.step, found.params, found.mesh, size)
        rows = (_row(line, where, predictor.parse) for where, line in lines)
        for some in iter(lambda: list(itertools.islice(rows, size)), []):
            answers = predictor.answer([parsed for _, parsed in some], ask, size)
            for (row, _), answer in zip(some, answers, strict=True):
                output.write(json.dumps({**row, **answer}, ensure_ascii=False) + "\n")
            output.flush()


def _row(line: str, where: str, parse: Callable) -> tuple[dict[str, Any], Any]:
    """An input line: its JSON object, and the task's parsed example."""
    row = outside.parse(line, where)
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is required")
    try:
        return row, parse(row)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


@contextlib.contextmanager
def _lines(source: str) -> Iterator[Iterable[tuple[str, str]]]:
    """Yields (place, line) for each line that is not empty."""

    def numbered(file: Iterable[bytes], name: str) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise UserError(f"{name}:{number}: not UTF-8: {error}") from error
            if text:
                yield f"{name}:{number}", text

    if source == "-":
        if sys.stdin is None:
            raise UserError("standard input is closed: name a file with --input=FILE")
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
    if not processes.is_first():  # the others compute, but write nothing
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    if target == "-":
        yield sys.stdout
        return
    with storage.replacing(storage.output(target)) as file:
        yield file
