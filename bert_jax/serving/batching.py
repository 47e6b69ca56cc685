"""Rows of many requests, answered in batches by one thread.

The thread also compiles: a program computes a number of rows of one length. A few are
compiled before requests need them, and others in pauses; meanwhile rows are padded to a
longer length, which has one.
"""

import asyncio
import gc
import json
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

MAX_CHARACTERS = 100_000  # of a row
MAX_TOKENS = 512  # of a row compiled ahead: a longer one may not fit into memory
_SHORT = 80  # characters; shorter rows are alike
_PAUSE = 0.2  # seconds without a row, after which a program is compiled
_OFTEN = 4  # batches of a length that are padded more; the next waits for its program


class CompiledLengths(BatchSize):
    """A batch size that pads rows to lengths that have a program.

    Attributes:
      compiled: Those lengths.
      missing: Programs to compile: numbers of rows and, negative, of tokens.
    """

    def __init__(self, *_: int):
        self.compiled: set[int] = set()
        self.missing: set[tuple[int, int]] = set()
        self._batches: Counter[int] = Counter()  # by length

    def length(self, longest: int, limit: int) -> int:
        """Returns the length to pad rows to; notes the programs of a new one."""
        best = super().length(longest, limit)
        if not self._batches[best]:
            sizes = piece_sizes(self.at(best)) if self.width else [self.rows]
            self.missing |= {(rows, -best) for rows in sizes}
        self._batches[best] += 1
        longer = (n for n in self.compiled if n >= best)
        return best if self._batches[best] > _OFTEN else min(longer, default=best)


class _Row(NamedTuple):
    number: int  # in its request
    content: Any
    characters: int
    answer: "Future[str]"


class Batcher:
    """A thread that answers rows: first come, first served, with others of like length.

    Args:
      answerer: The model, whose batch size is the largest.
      example: A short row of its task.
      limit: Maximum number of tokens of a row.
    """

    def __init__(self, answerer: Answerer, example: Any, limit: int):
        size = answerer.size
        self._answerer = answerer
        self._lengths = answerer.size = CompiledLengths(*size)
        # On a CPU rows together gain little, if they are long, and padding costs.
        self._ratio, self._most = (1.25, 3_000) if size.width else (4.0, 1_000_000)
        self._arrived: queue.SimpleQueue[_Row] = queue.SimpleQueue()
        self._waiting: list[_Row] = []
        limit = min(limit, MAX_TOKENS)
        try:
            self._example = answerer.parse(example)
            for tokens in (limit, *(1 << n for n in range(4, limit.bit_length()))):
                self._lengths.length(tokens, limit)
        except Exception as error:  # a custom task may have other rows
            log.info("nothing is compiled before a request: %s", first_line(error))
        self._compile_next()
        threading.Thread(target=self._work, name="batches", daemon=True).start()

    async def answers(self, rows: Sequence[Any]) -> list[str]:
        """Returns rows with their answers, as JSON.

        Cancelling it takes the rows from the queue. A long list enters the queue a few
        rows at a time, so others have their turn between.

        Raises:
          HTTPException: A row is wrong.
        """
        answers: list[str] = []
        for start in range(0, len(rows), self._lengths.rows):
            some = [
                _Row(start + n, row, max(len(str(row)), _SHORT), Future())
                for n, row in enumerate(rows[start : start + self._lengths.rows])
            ]
            for row in some:
                self._arrived.put(row)
            answers += await asyncio.gather(
                *(asyncio.wrap_future(row.answer) for row in some)
            )
        return answers

    def _work(self) -> None:
        compiles = True
        while True:
            try:
                while True:
                    pause = 0.0 if self._waiting else _PAUSE if compiles else None
                    self._waiting.append(self._arrived.get(timeout=pause))
                    compiles = True
            except queue.Empty:
                if not self._waiting:
                    compiles = self._compile_next()
            self._answer(self._next_batch())

    def _next_batch(self) -> list[_Row]:
        batch: list[_Row] = []
        others: list[_Row] = []
        for row in self._waiting:
            first = (batch[0] if batch else row).characters
            is_alike = 1 / self._ratio <= row.characters / first <= self._ratio
            most = min(self._lengths.rows, max(1, self._most // first))
            if not is_alike or len(batch) == most:
                others.append(row)
            elif row.answer.set_running_or_notify_cancel():  # its client has not left
                batch.append(row)
        self._waiting = others
        return batch

    def _answer(self, batch: list[_Row]) -> None:
        """Answers rows; a failing one fails alone."""
        parsed = []
        for row in batch:
            try:
                parsed.append((row, self._parsed(row)))
            except BaseException as error:  # the tokenizers' panics are no Exception
                row.answer.set_exception(_harmless(error))
        try:
            answers = self._answerer.start([example for _, example in parsed])()
        except BaseException as error:  # the thread goes on for the others
            if len(parsed) == 1:
                parsed[0][0].answer.set_exception(_harmless(error))
            else:
                for row, _ in parsed:
                    self._answer([row])
            return
        for (row, _), answer in zip(parsed, answers, strict=True):
            content = row_files.answered(row.content, row_files.rounded(answer))
            row.answer.set_result(json.dumps(content, allow_nan=False))

    def _parsed(self, row: _Row) -> Any:
        try:
            if row.characters > MAX_CHARACTERS:
                text = f"more than {MAX_CHARACTERS:,} characters are for predict"
                raise ValueError(text)
            return self._answerer.parse(row.content)
        except ValueError as error:
            raise HTTPException(400, f"row {row.number}: {error}") from error

    def _compile_next(self) -> bool:
        """Compiles a missing program, those of few rows and many tokens first.

        Returns:
          Whether there was one.
        """
        lengths = self._lengths
        if not lengths.missing:
            return False
        rows, negative = min(lengths.missing)
        lengths.missing.remove((rows, negative))
        self._answerer.size = only = CompiledLengths(*lengths)
        only.compiled = {-negative}
        try:
            self._answerer.start([self._example] * rows)()
            lengths.compiled.add(-negative)
        except Exception as error:  # no request needs it: rows are padded more
            lengths.missing -= {one for one in lengths.missing if one[1] == negative}
            log.warning("not compiled: %d tokens: %s", -negative, first_line(error))
        self._answerer.size = lengths
        # Programs leave many objects, and stay: without this, requests wait up to 0.4 s
        # whenever Python looks through those for garbage.
        gc.collect()
        gc.freeze()
        return True


def _harmless(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(error)
