"""Compiles programs beside the requests, so that these need not wait.

A program is of so many rows of one shape. Rows that lack theirs are computed one by
one by a larger one meanwhile, with more padding; so a few are compiled before anybody
asks, the largest first.
"""

import contextlib
import logging
import operator
import queue
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.answering import Answering
from bert_jax.data.rows import Batch, BatchSize
from bert_jax.tasks.task import Outputs, PredictFn, Task
from bert_jax.training import inference

log = logging.getLogger(__name__)

_START = 0.5  # seconds that the first request has alone
# Tokens of the longest row that is computed before anybody asks: attention takes memory
# by their square.
LONGEST = 512
_LEAST = 16  # tokens; and places of what else a row has, such as masks

_Shape = tuple[tuple, ...]  # of a row: each column's name and sizes
_Program = tuple[int, _Shape]  # rows, and their shape


class Ahead:
    """Computes batches of a size with a width, in pieces.

    Args:
      ask: computes a batch, and compiles before what is missing.
      size: of its batches.
    """

    def __init__(self, ask: PredictFn, size: BatchSize):
        self._ask, self._size = ask, size
        self._ready: set[_Program] = set()
        self._wanted: set[_Program] = set()
        self._batches: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        self._under_way: Iterable[_Program] = ()
        self._done, self._asked = threading.Event(), threading.Event()

    def begin(self, row: Batch, limit: int) -> None:
        """Begins to compile.

        Args:
          row: a batch of one; others are like it, or longer.
          limit: their most tokens.
        """
        length = limit
        while length >= _LEAST:
            self._want(_stretched(row, length))
            length = 1 << (length - 1).bit_length() - 1
        threading.Thread(target=self._work, name="ahead", daemon=True).start()

    def __call__(self, batch: Batch) -> Outputs:
        """The outputs of a batch."""
        if self._needs(batch) <= self._ready:
            return self._ask(batch)
        if _larger(batch, self._under_way) and not _larger(batch, self._ready):
            self._done.wait()
        larger = _larger(batch, self._ready)
        if not larger:
            outputs = self._compile(batch)
            self._asked.set()
            return outputs
        self._want(batch)
        padded = {name: _padded(batch[name], sizes) for name, *sizes in larger}
        rows = [
            self._ask({name: column[n : n + 1] for name, column in padded.items()})
            for n in range(len(batch["input_ids"]))
        ]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def _want(self, batch: Batch) -> None:
        needs = self._needs(batch)
        if not needs <= self._wanted:
            self._wanted |= needs
            self._batches.put(batch)

    def _work(self) -> None:
        self._asked.wait(_START)
        while True:
            batch = self._batches.get()
            self._done.clear()
            self._under_way = self._needs(batch)
            try:
                self._compile(batch)
            except Exception:  # it fails where it is asked for, with its error
                log.debug("not compiled ahead", exc_info=True)
            self._under_way = ()
            self._done.set()

    def _compile(self, batch: Batch) -> Outputs:
        outputs = self._ask(batch)
        self._ready |= self._needs(batch)
        return outputs

    def _needs(self, batch: Batch) -> frozenset[_Program]:
        count, *row = batch["input_ids"].shape
        whole = self._size.at(int(np.prod(row)))
        shape = _shape(batch)
        return frozenset((of, shape) for _, of in inference.pieces(count, whole))


def of_task(task: Task, model: Answering, fields: Iterable[str]) -> Ahead:
    """Computes a model's batches; begins to compile for rows of these fields."""
    computes = Ahead(model.ask, model.size)
    row: dict[str, Any] = dict.fromkeys(fields, "a")
    if "endings" in row:
        row["endings"] = ["a"] * 4
    limit = task.config.task.get("max_seq_length", 0)
    limit = limit or task.model_config.max_position_embeddings
    with contextlib.suppress(Exception):  # a task of one's own may have other rows
        parsed = [model.predictor.parse(row)]
        (batch,) = model.predictor.encode(parsed, model.size).batches
        computes.begin(batch, min(limit, LONGEST))
    return computes


def _shape(batch: Batch) -> _Shape:
    return tuple((name, *x.shape[1:]) for name, x in sorted(batch.items()))


def _larger(batch: Batch, programs: Iterable[_Program]) -> _Shape | None:
    """The shape of the smallest program of one row that can compute the batch."""
    shape = _shape(batch)
    larger = [has for of, has in list(programs) if of == 1 and _fits(shape, has)]
    return min(larger, key=_places, default=None)


def _fits(small: _Shape, large: _Shape) -> bool:
    return len(small) == len(large) and all(
        len(some) == len(more)
        and some[0] == more[0]
        and all(map(operator.le, some[1:], more[1:]))
        for some, more in zip(small, large, strict=True)
    )


def _places(shape: _Shape) -> int:
    return sum(int(np.prod(sizes)) for _, *sizes in shape)


def _padded(column: np.ndarray, sizes: Iterable[int]) -> np.ndarray:
    """Rows of these sizes, with 0 behind."""
    more = [(0, b - a) for a, b in zip(column.shape[1:], sizes, strict=True)]
    return np.pad(column, [(0, 0), *more])


def _stretched(row: Batch, length: int) -> Batch:
    """A batch of one, as if its text had so many tokens."""
    now = row["input_ids"].shape[-1]
    rest = min(_LEAST, length)

    def sizes(column: np.ndarray) -> tuple[int, ...]:
        if column.ndim == 1 or column.dtype.kind == "f":
            return column.shape
        if now in column.shape[1:]:
            return (1, *(length if n == now else n for n in column.shape[1:]))
        *outer, last = column.shape
        return (*outer, max(last, rest))

    return {name: np.zeros(sizes(x), x.dtype) for name, x in row.items()}
