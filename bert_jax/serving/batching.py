"""Rows of many requests, answered in batches by one thread.

A program computes a number of rows of one length. Most are compiled before the first
request, so there are few lengths.
"""

import asyncio
import gc
import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from bert_jax.data.rows import BatchSize, padded_length
from bert_jax.errors import first_line
from bert_jax.tasks import row_files
from bert_jax.training.inference import Answerer

log = logging.getLogger(__name__)

MAX_TOKENS = 512  # per precompiled row, because longer ones may not fit into memory
LENGTHS = tuple(1 << power for power in range(4, 50))
_SHORT = 80  # characters, below which rows count as of one length
_LONG = 20_000  # characters (some 10 ms), from which others need not wait for a parser


class ServedSize(BatchSize):
    """A batch size whose lengths are powers of two."""

    least = 0  # the length of a row, at least

    def length(self, longest: int, limit: int) -> int:
        """Returns the padded length for a batch's longest row of `longest` tokens."""
        return padded_length(max(longest, self.least), limit, LENGTHS)


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
        self._size = answerer.size = ServedSize(*size)
        # On a CPU rows together gain little, if they are long, and padding costs.
        self._ratio, self._max_characters = (
            (1.25, 3_000) if size.width else (4.0, 1_000_000)
        )
        self._arrived: queue.SimpleQueue[_Row] = queue.SimpleQueue()
        self._waiting: list[_Row] = []
        try:
            # Compiles programs of every length, for one row and for most.
            (parsed,) = answerer.parse_rows([example])
            limit = min(answerer.predictor.max_seq_length, MAX_TOKENS)
            for length in (*(n for n in LENGTHS if n < limit), limit):
                self._size.least = length
                for rows in sorted({1, self._size.max_rows(length)}):
                    answerer.start([parsed] * rows)()
        except Exception as error:  # a custom task may have other rows
            log.info("not compiled before a request: %s", first_line(error))
        self._size.least = 0
        # Programs leave many objects, and stay. Without this, requests wait up to 0.4 s
        # whenever Python looks through those for garbage.
        gc.collect()
        gc.freeze()
        threading.Thread(target=self._work, name="batches", daemon=True).start()

    @property
    def queued_rows(self) -> int:
        """The number of rows that wait, without those in work."""
        return self._arrived.qsize() + len(self._waiting)

    @property
    def cut(self) -> int:
        """The number of texts that were cut."""
        return self._answerer.notices.total()

    async def answers(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Returns rows with their answers, or raises HTTPException if one is wrong.

        Cancelling it takes the rows from the queue. A long list enters the queue a few
        rows at a time, so others have their turn between.
        """
        found: list[dict[str, Any]] = []
        parse = self._answerer.parse_rows
        for start in range(0, len(rows), self._size.rows):
            some = rows[start : start + self._size.rows]
            lengths = [max(len(str(row)), _SHORT) for row in some]
            try:
                if sum(lengths) < _LONG:
                    parsed = parse(some, start)
                else:
                    parsed = await asyncio.to_thread(parse, some, start)
            except ValueError as error:
                raise HTTPException(400, str(error)) from error
            queued = [
                _Row(each, length, Future())
                for each, length in zip(parsed, lengths, strict=True)
            ]
            for row in queued:
                self._arrived.put(row)
            waits = (asyncio.wrap_future(row.answer) for row in queued)
            answers = map(row_files.round_numbers, await asyncio.gather(*waits))
            found += map(row_files.answered_row, some, answers)
        return found

    def _work(self) -> None:
        while True:
            try:
                self._waiting.append(self._arrived.get(block=not self._waiting))
            except queue.Empty:
                self._answer(self._next_batch())

    def _next_batch(self) -> list[_Row]:
        batch, others = list[_Row](), list[_Row]()
        for row in self._waiting:
            first = (batch[0] if batch else row).characters
            is_alike = 1 / self._ratio <= row.characters / first <= self._ratio
            max_rows = min(self._size.rows, max(1, self._max_characters // first))
            if not is_alike or len(batch) == max_rows:
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
