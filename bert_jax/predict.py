"""`--mode=predict`: JSON lines in, JSON lines out."""

import contextlib
import json
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from bert_jax.errors import UserError
from bert_jax.runtime import outside, processes, storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks import attention_files
from bert_jax.tasks.attentions import Keep, WithAttentions, keeping, rows_at_once
from bert_jax.tasks.task import Batch, Outputs, Predictor, Task
from bert_jax.training import initial, sharding
from bert_jax.training.evaluator import submitting


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads JSON lines and writes JSON lines, in the same order; with
    `config.predict.attentions` also its two files.

    Args:
      folder: the work directory with the checkpoint.
      source: a file, or `-` for standard input.
      target: a file, written completely or not at all, or `-` for standard output.
    """
    with (
        _lines(source) as lines,
        initial.restored(task, folder, task.unused(predicts=True)) as found,
        _output(target) as output,
        contextlib.ExitStack() as stack,
    ):
        predictor = task.predictor(found.missing)
        rows = task.config.predict.batch_size
        if name := task.config.predict.attentions:
            kept = stack.enter_context(_attentions(name, task))
            config = task.model_config
            predictor = WithAttentions(predictor, config, found.params)
            longest = getattr(task, "row_shape", (config.max_position_embeddings,))
            rows = rows_at_once(config, longest, rows)
        size = sharding.batch_multiple(found.mesh, rows)
        submit = submitting(predictor.step, found.params, found.mesh, size)
        if name:
            submit = keeping(submit, kept)
        for some in answered(lines, predictor, submit, size):
            output.writelines(some)
            output.flush()


# Rows that are sorted by length together: so many batches, or at least one and so many
# characters of JSON.
WINDOW = 16
CHARACTERS = 1_000_000

Line = tuple[str, str]  # place and text
Read = list[tuple[dict[str, Any], Any]]  # rows with what the task parsed
Started = Callable[[], Iterator[str]]  # waits for the answers; lines of the output


def answered(
    lines: Iterable[Line | None],
    predictor: Predictor,
    submit: Callable[[Batch], Callable[[], Outputs]],
    size: int,
) -> Iterator[Iterator[str]]:
    """Yields lines of the output, in the order of the input, some at a time.

    Args:
      lines: place and text of each row; None where the input pauses: the rows before
        it are answered at once.
      submit: from `submitting`, with `predictor.step`.
      size: rows of a batch.
    """
    started: list[Started] = []
    for rows, pauses in _windows(lines, predictor.parse, size):
        # The device computes these rows while the next ones are read and encoded.
        started.append(_start(predictor, rows, submit, size))
        while len(started) > (0 if pauses else 1):
            yield started.pop(0)()


def _start(predictor: Predictor, rows: Read, submit: Callable, size: int) -> Started:
    """Starts the computation of some rows."""
    if not rows:
        return lambda: iter(())
    questions = predictor.encode([parsed for _, parsed in rows], size)
    waits = [submit(batch) for batch in questions.batches]

    def finish() -> Iterator[str]:
        answers = questions.answers([wait() for wait in waits])
        for (row, _), answer in zip(rows, answers, strict=True):
            yield json.dumps({**row, **answer}, ensure_ascii=False) + "\n"

    return finish


def _windows(
    lines: Iterable[Line | None], parse: Callable, size: int
) -> Iterator[tuple[Read, bool]]:
    """Yields up to WINDOW batches of rows, and whether the input pauses after them or
    ends.

    Args:
      size: rows of a batch.

    Raises:
      UserError: a row is wrong; the rows before it come first.
    """
    rows: Read = []
    characters = 0
    try:
        for line in lines:
            if line is not None:
                rows.append(_row(*line, parse))
                characters += len(line[1])
            long = characters > CHARACTERS and len(rows) >= size
            if line is None or long or len(rows) == WINDOW * size:
                yield rows, line is None
                rows, characters = [], 0
    except UserError:
        yield rows, True
        raise
    yield rows, True


def _row(where: str, line: str, parse: Callable) -> tuple[dict[str, Any], Any]:
    """An input line: its JSON object, and the task's parsed example."""
    row = outside.parse(line, where)
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is required")
    try:
        return row, parse(row)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


@contextlib.contextmanager
def _lines(source: str) -> Iterator[Iterable[Line | None]]:
    """Yields (place, line) for each line that is not empty, and None at a pause."""

    def numbered(file: Any, name: str) -> Iterator[Line | None]:
        number = 0
        for line in _with_pauses(file):
            if line is None:
                yield None
                continue
            number += 1
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


def _with_pauses(file: Any) -> Iterator[bytes | None]:
    """Yields the lines of a file, and None where a terminal or pipe has no more yet."""
    # Where processes share the work, each must read the same rows at once.
    if processes.count() > 1 or not _may_pause(file):
        yield from file
        return
    parts: list[bytes] = []  # of a line that has not ended
    while True:
        if not select.select([file], [], [], 0)[0]:
            yield None
        found = os.read(file.fileno(), 1 << 16)
        parts.append(found)
        if not found or b"\n" in found:
            *lines, rest = b"".join(parts).split(b"\n")
            parts = [rest]
            yield from lines
        if not found:
            yield from parts
            return


def _may_pause(file: Any) -> bool:
    try:
        return not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:  # no file of the system's, as in a bucket
        return False


@contextlib.contextmanager
def _attentions(name: str, task: Task) -> Iterator[Keep]:
    """Yields what takes each row's probabilities; writes the files at the end."""
    if not processes.is_first():
        yield lambda *_: None
        return
    with attention_files.keeping(name, task.tokenizer) as kept:
        yield kept.add


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
