"""Rows of many requests, answered in batches by one thread.

The thread also compiles: a program computes a number of rows of one length. One is
compiled before requests need it, others in pauses. Until then rows are padded to a
longer length, which has one.
"""

import asyncio
import gc
import logging
import queue
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from bert_jax.data.rows import BatchSize
from bert_jax.errors import first_line
from bert_jax.tasks import row_files
from bert_jax.training.inference import Answerer, piece_sizes

log = logging.getLogger(__name__)

MAX_TOKENS = 512  # per precompiled row, because longer ones may not fit into memory
_SHORT = 80  # characters, below which rows count as of one length
_PAUSE = 0.2  # seconds without a row, after which a program is compiled
_OFTEN = 4  # batches of a length that are padded more before one awaits its program


class CompiledLengths(BatchSize):
    """A batch size that pads rows to lengths that have a program."""

    def __init__(self, *_: int):
        # Programs to compile: numbers of rows and, negative, of tokens.
        self.missing: set[tuple[int, int]] = set()
        self.compiled: set[int] = set()
        self.compiling = 0  # the length of the program in work
        self._batches: Counter[int] = Counter()  # by length

    def length(self, longest: int, limit: int) -> int:
        """Returns the length to pad rows to, and records the programs of a new one."""
        if self.compiling:
            return self.compiling
        best = super().length(longest, limit)
        if not self._batches[best]:
            self.missing |= {(rows, -best) for rows in piece_sizes(self.max_rows(best))}
        self._batches[best] += 1
        longer = (n for n in self.compiled if n >= best)
        return best if self._batches[best] > _OFTEN else min(longer, default=best)


class _Row(NamedTuple):
    parsed: Any
    characters: int
    answer: "Future[dict[str, Any]]"


class Batcher:
    """A thread that answers rows: first come, first served, with others of like length.

    Args:
      answerer: The model, whose batch size is the largest.
      example: A short row of its task.
    """

    def __init__(self, answerer: Answerer, example: Any):
        self._answerer, size = answerer, answerer.size
        self._lengths = answerer.size = CompiledLengths(*size)
        # On a CPU rows together gain little, if they are long, and padding costs.
        self._ratio, self._most = (1.25, 3_000) if size.width else (4.0, 1_000_000)
        self._arrived: queue.SimpleQueue[_Row] = queue.SimpleQueue()
        self._waiting: list[_Row] = []
        try:
            self._example = answerer.parse_row(example)
            limit = min(answerer.predictor.max_seq_length, MAX_TOKENS)
            for tokens in (limit, *(1 << n for n in range(4, limit.bit_length()))):
                self._lengths.length(tokens, limit)
            self._compile_next()
        except Exception as error:  # a custom task may have other rows
            log.info("nothing is compiled before a request: %s", first_line(error))
        threading.Thread(target=self._work, name="batches", daemon=True).start()

    async def answers(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Returns rows with their answers, or raises HTTPException if one is wrong.

        Cancelling it takes the rows from the queue. A long list enters the queue a few
        rows at a time, so others have their turn between.
        """
        found: list[dict[str, Any]] = []
        for start in range(0, len(rows), self._lengths.rows):
            some = rows[start : start + self._lengths.rows]
            queued = [self._row(start + n, row) for n, row in enumerate(some)]
            for row in queued:
                self._arrived.put(row)
            waits = (asyncio.wrap_future(row.answer) for row in queued)
            answers = map(row_files.round_numbers, await asyncio.gather(*waits))
            found += map(row_files.answered_row, some, answers)
        return found

    def _row(self, number: int, row: Any) -> _Row:
        try:
            parsed = self._answerer.parse_row(row)
        except ValueError as error:
            raise HTTPException(400, f"row {number}: {error}") from error
        return _Row(parsed, max(len(str(row)), _SHORT), Future())

    def _work(self) -> None:
        while True:
            pause = 0.0 if self._waiting else _PAUSE if self._lengths.missing else None
            try:
                self._waiting.append(self._arrived.get(timeout=pause))
            except queue.Empty:
                if self._waiting:
                    self._answer(self._next_batch())
                else:
                    self._compile_next()

    def _next_batch(self) -> list[_Row]:
        batch, others = list[_Row](), list[_Row]()
        for row in self._waiting:
            first = (batch[0] if batch else row).characters
            is_alike = 1 / self._ratio <= row.characters / first <= self._ratio
            most = min(self._lengths.rows, max(1, self._most // first))
            if not is_alike or len(batch) == most:
                others.append(row)
            elif row.answer.set_running_or_notify_cancel():  # its client is connected
                batch.append(row)
        self._waiting = others
        return batch

    def _answer(self, batch: list[_Row]) -> None:
        try:
            answers = self._answerer.start([row.parsed for row in batch])()
        except BaseException as error:  # the thread continues for the others
            for row in batch if len(batch) > 1 else ():
                self._answer([row])
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
            return
        for row, answer in zip(batch, answers, strict=True):
            row.answer.set_result(answer)

    def _compile_next(self) -> None:
        """Compiles a missing program, those of few rows and many tokens first."""
        lengths = self._lengths
        rows, negative = min(lengths.missing)
        lengths.missing.remove((rows, negative))
        lengths.compiling = -negative
        try:
            self._answerer.start([self._example] * rows)()
            lengths.compiled.add(-negative)
        except Exception as error:  # no request needs it: rows are padded more
            lengths.missing -= {one for one in lengths.missing if one[1] == negative}
            log.warning("not compiled: %d tokens: %s", -negative, first_line(error))
        lengths.compiling = 0
        # Programs leave many objects, and stay. Without this, requests wait up to 0.4 s
        # whenever Python looks through those for garbage.
        gc.collect()
        gc.freeze()
