"""Rows of many requests, answered in batches by one thread.

The thread also compiles: a program computes a number of rows of one length. A few are
compiled before requests need them, and others in pauses; meanwhile rows are padded to a
longer length, which has one.
"""

import asyncio
import contextlib
import gc
import json
import logging
import queue
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from bert_jax.answering import Answering, parsed_row
from bert_jax.data.rows import BatchSize
from bert_jax.errors import first_line
from bert_jax.tasks import row_files
from bert_jax.training.inference import piece_sizes

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
    answer: asyncio.Future[str]


class Batcher:
    """A thread that answers rows: first come, first served, with others of like length.

    Args:
      model: The model, whose batch size is the largest.
      example: A short row of its task.
      limit: Maximum number of tokens of a row.
    """

    def __init__(self, model: Answering, example: Any, limit: int):
        self._lengths = CompiledLengths(*model.size)
        self._model = model._replace(size=self._lengths)
        # On a CPU rows together gain little, if they are long, and padding costs.
        on_cpu = bool(model.size.width)
        self._ratio, self._characters = (1.25, 3_000) if on_cpu else (4.0, 1_000_000)
        self._arrived: queue.SimpleQueue[_Row] = queue.SimpleQueue()
        self._waiting: list[_Row] = []
        limit = min(limit, MAX_TOKENS)
        try:
            self._example = parsed_row(model.predictor, example)
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
        loop, most = asyncio.get_running_loop(), self._lengths.rows
        for start in range(0, len(rows), most):
            some = [
                _Row(n, row, max(len(str(row)), _SHORT), loop.create_future())
                for n, row in enumerate(rows[start : start + most], start)
            ]
            for row in some:
                self._arrived.put(row)
            answers += await asyncio.gather(*(row.answer for row in some))
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
            if batch := self._next_batch():
                self._answer(batch)

    def _next_batch(self) -> list[_Row]:
        batch: list[_Row] = []
        others: list[_Row] = []
        for row in self._waiting:
            if row.answer.cancelled():
                continue
            first = (batch[0] if batch else row).characters
            is_alike = 1 / self._ratio <= row.characters / first <= self._ratio
            most = min(self._lengths.rows, max(1, self._characters // first))
            (batch if is_alike and len(batch) < most else others).append(row)
        self._waiting = others
        return batch

    def _answer(self, batch: list[_Row]) -> None:
        try:
            results = self._results(batch)
        except BaseException as error:  # the thread goes on for the others
            if len(batch) > 1:
                for row in batch:
                    self._answer([row])
                return
            # The tokenizers' panics, in Rust, are no Exception.
            results = [error if isinstance(error, Exception) else RuntimeError(error)]
        with contextlib.suppress(RuntimeError):  # the server has ended
            batch[0].answer.get_loop().call_soon_threadsafe(_deliver, batch, results)

    def _results(self, batch: list[_Row]) -> list[Any]:
        """Returns the rows with their answers, as JSON, or the errors of wrong rows."""
        results: list[Any] = []
        for row in batch:
            try:
                if row.characters > MAX_CHARACTERS:
                    text = f"more than {MAX_CHARACTERS:,} characters are for predict"
                    raise ValueError(text)
                results.append(parsed_row(self._model.predictor, row.content))
            except ValueError as error:
                results.append(HTTPException(400, f"row {row.number}: {error}"))
        right = [n for n, x in enumerate(results) if not isinstance(x, HTTPException)]
        answers = self._model.answer([results[n] for n in right]) if right else []
        for n, answer in zip(right, answers, strict=True):
            content = row_files.answered(batch[n].content, row_files.rounded(answer))
            results[n] = json.dumps(content, allow_nan=False)
        return results

    def _compile_next(self) -> bool:
        """Compiles a missing program, those of few rows and many tokens first.

        Returns:
          Whether there was one.
        """
        if not self._lengths.missing:
            return False
        program = rows, negative = min(self._lengths.missing)
        self._lengths.missing.remove(program)
        only = CompiledLengths(*self._lengths)
        only.compiled = {-negative}
        try:
            self._model.predictor.answer([self._example] * rows, self._model.ask, only)
            self._lengths.compiled.add(-negative)
        except Exception as error:  # no request needs it: rows are padded more
            others = {one for one in self._lengths.missing if one[1] != negative}
            self._lengths.missing = others
            log.warning("not compiled: %d tokens: %s", -negative, first_line(error))
        # Programs leave many objects, and stay: without this, requests wait up to 0.4 s
        # whenever Python looks through those for garbage.
        gc.collect()
        gc.freeze()
        return True


def _deliver(batch: list[_Row], results: list[Any]) -> None:
    for row, result in zip(batch, results, strict=True):
        if row.answer.done():  # the client has left
            continue
        if isinstance(result, Exception):
            row.answer.set_exception(result)
        else:
            row.answer.set_result(result)
