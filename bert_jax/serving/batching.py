"""Rows of many requests, computed together."""

import concurrent.futures
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

Answers = list[dict[str, Any]]
Waiting = tuple[Any, "concurrent.futures.Future[dict[str, Any]]"]


class Batcher:
    """Computes in a thread; while it does, the next rows gather.

    Args:
      compute: parsed rows -> what to add to each.
      most: rows computed together.
    """

    def __init__(self, compute: Callable[[Sequence[Any]], Answers], most: int):
        self._compute, self._most = compute, most
        self._rows: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, parsed: Any) -> "concurrent.futures.Future[dict[str, Any]]":
        """The answer to a row, when it is computed."""
        future: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
        self._rows.put((parsed, future))
        return future

    def close(self) -> None:
        """Ends the thread once the rows before are answered."""
        self._rows.put(None)
        self._thread.join()

    def _work(self) -> None:
        ends = False
        while not ends:
            batch: list[Waiting] = []
            found = self._rows.get()
            while found is not None:
                batch.append(found)
                if len(batch) == self._most or self._rows.empty():
                    break
                found = self._rows.get()
            ends = found is None
            if batch:
                self._answer(batch)

    def _answer(self, batch: Sequence[Waiting]) -> None:
        # Who no longer waits need not be answered.
        live = [each for each in batch if each[1].set_running_or_notify_cancel()]
        try:
            answers = self._compute([parsed for parsed, _ in live]) if live else []
        except Exception as error:  # whatever it is, those who wait get it
            for _, future in live:
                future.set_exception(error)
            return
        for (_, future), answer in zip(live, answers, strict=True):
            future.set_result(answer)
