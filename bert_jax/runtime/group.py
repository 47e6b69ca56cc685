"""A process among the others of its run: the words that go between them.

Stopping at the same step. The loop passes the same points in every process: the ends of
steps, evaluation batches, compilations. A signal to any process is told to all. Each
then says which point is the next it can stop at, and holds its loop until all have
said so; all stop at the furthest of these. So no process is left alone in a collective,
all save the same step, and a step costs nothing more than counting it.
"""

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from bert_jax.errors import Interrupted
from bert_jax.runtime import lifeline, signals

_BEAT = 2.0  # seconds between two signs of life


class Group:
    """This process among the others.

    Words stand under word/0, word/1, ... of the coordination service, each written
    once: `stop NUMBER`, a signal; `end STATUS TEXT`, a failure; `bye`.
    """

    def __init__(
        self, client: Any, index: int, count: int, patience: int, host: str = ""
    ):
        self.index, self.count = index, count
        self.stop = _Stop(self)
        self._client, self._patience = client, patience
        self._waits = itertools.count()
        self._end = threading.Lock()  # held by whoever ends this process
        self._closing = False
        if host and index == 0:
            self.set("lifeline", lifeline.hold(host, self._lost))
        elif host and (held := self.get("lifeline", patience)):
            lifeline.grasp(host, held, index, self._lost)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def barrier(self) -> None:
        wait = next(self._waits)
        if self._client.key_value_increment(f"at/{wait}", 1) == self.count:
            self._client.key_value_set(f"go/{wait}", "go")
        while self.get(f"go/{wait}", 1.0) is None:
            pass  # in short spells, so that a signal is noticed between them

    def all_true(self, value: bool) -> bool:
        """Whether it is true in every process; all ask."""
        question = next(self._waits)
        if not value:
            self.set(f"no/{question}/{self.index}", "no")
        self.barrier()
        return not self._client.key_value_dir_get(f"no/{question}/")

    def first(self, value: str) -> str:
        """What process 0 gives; all give something."""
        question = next(self._waits)
        if self.index == 0:
            self.set(f"first/{question}", value)
        while (given := self.get(f"first/{question}", 1.0)) is None:
            pass
        return given

    def get(self, key: str, seconds: int | float) -> str | None:
        """What stands there, as soon as it does; None where it takes too long."""
        try:
            return self._client.blocking_key_value_get(key, int(1000 * seconds))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise

    def set(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value)

    def tell(self, word: str) -> None:
        """Says a word to all, after those said before."""
        for place in itertools.count():
            try:
                self._client.key_value_set(f"word/{place}", word)
                return
            except RuntimeError as error:
                if "ALREADY_EXISTS" not in str(error):
                    raise

    def close(self) -> None:
        self.barrier()
        self._closing = True
        if self.index == 0:
            self.tell("bye")
        self._listener.join()
        import jax

        jax.distributed.shutdown()

    def fail(self, status: int, text: str) -> None:
        self._end.acquire()  # and never released
        with contextlib.suppress(RuntimeError):
            self.tell(f"end {status} process {self.index}: {' '.join(text.split())}")
        self._let_them_hear()

    def _lost(self, index: str = "0") -> None:
        """The connection to another process has broken."""
        if self._closing:
            return
        if self.index == 0:
            self.tell(f"end 1 process {index} has ended without a word")
        else:
            self._exit(1, _NO_SERVICE)

    def _listen(self) -> None:
        heard = Heard(self.count)
        words, beat = itertools.count(), itertools.count()
        place = next(words)
        try:
            while True:
                self._client.key_value_set(
                    f"alive/{self.index}", str(next(beat)), allow_overwrite=True
                )
                if self.index == 0:
                    entries = self._client.key_value_dir_get("alive/")
                    silent = heard.silent(dict(entries), self._patience)
                    if silent:
                        self.tell(
                            f"end 1 process {silent[0]} has given no sign of life for "
                            f"{self._patience} s"
                        )
                word = self.get(f"word/{place}", _BEAT)
                if word is None:
                    continue
                place = next(words)
                match word.split(maxsplit=2):
                    case ["stop", number]:
                        self.stop.agree(int(number), self._patience)
                    case ["end", status, text]:
                        self._exit(int(status), text)
                    case _:
                        return
        except RuntimeError:
            self._exit(1, _NO_SERVICE)

    def _exit(self, status: int, text: str) -> NoReturn:
        """Ends this process from the listening thread."""
        self._end.acquire()
        os.write(2, f"error: {text}{_ADVICE}\n".encode())
        if text != _NO_SERVICE:  # JAX aborts where it notices that first
            self._let_them_hear()
        os._exit(status)

    def _let_them_hear(self) -> None:
        """Stays until the others have heard, process 0 longest: the service is its."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(0.5 if self.index else 1.0)


_NO_SERVICE = "process 0 has ended without a word"
_ADVICE = "; every process ends, and the same command goes on from the last checkpoint"


class Heard:
    """When each process was last heard."""

    def __init__(self, count: int):
        now = time.monotonic()
        self._last = {str(index): ("", now) for index in range(count)}

    def silent(self, entries: dict[str, str], patience: int | float) -> list[str]:
        """The processes whose sign of life has been the same for too long."""
        now = time.monotonic()
        for key, beat in entries.items():
            index = key.rpartition("/")[2]
            if self._last[index][0] != beat:
                self._last[index] = (beat, now)
        return [i for i, (_, when) in self._last.items() if now - when > patience]


class _Stop(signals.Stop):
    """A signal that all processes act on at the same point; see above."""

    def __init__(self, group: "Group"):
        super().__init__()
        self._group = group
        self._lock = threading.Lock()
        self._point = 0  # how many the loop has come to
        self._stays = False  # it is still at the last of them
        self._last: int | None = None  # the point to stop at
        self._agreed = 0  # the signal
        self._told = False

    @property
    def is_agreed(self) -> bool:
        """Whether the processes know where to stop."""
        return self._last is not None

    def check(self) -> None:
        """A point of the loop; raises Interrupted where all processes stop."""
        self._tell()
        with self._lock:
            self._point += 1
            self._raise_if_last()

    @contextlib.contextmanager
    def lasting(self) -> Iterator[Callable[[], None]]:
        """A point that lasts as long as the block; gives what to call in it."""
        with self._lock:
            self._point += 1
            self._stays = True
            self._raise_if_last()

        def check() -> None:
            self._tell()
            with self._lock:
                self._raise_if_last()

        yield check
        with self._lock:
            self._stays = False
            self._raise_if_last()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """One process alone may not leave: the wait is gone through to its end."""
        yield

    def agree(self, signal_number: int, patience: int | float) -> None:
        """Finds the point to stop at, together with the other processes."""
        with self._lock:
            if self._last is not None:
                return
            mine = self._point if self._stays else self._point + 1
            self._group.set(f"stop/{self._group.index}", str(mine))
            points = [
                self._group.get(f"stop/{index}", patience)
                for index in range(self._group.count)
            ]
            if None in points:
                raise RuntimeError("a process does not answer")
            self._agreed = signal_number
            self._last = max(int(point) for point in points if point)

    def _tell(self) -> None:
        if self.signal_number is not None and not self._told:
            self._told = True
            self._group.tell(f"stop {self.signal_number}")

    def _raise_if_last(self) -> None:
        if self._last is not None and self._point >= self._last:
            raise Interrupted(self._agreed)
