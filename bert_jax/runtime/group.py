"""A process among the others of its run: what JAX's coordination service lacks.

Signs of life, barriers and the words under keys are JAX's. JAX can also stop all at one
step (`reached_preemption_sync_point`), but for SIGTERM alone, with a handler of its own
that would take the signal from ours, and at steps only: an evaluation, or a compilation
of minutes, would outlast the half minute that a preempted machine has. So that is here.

Stopping at the same point. The loop passes the same points in every process: the ends
of steps, evaluation batches, compilations. A signal to any process is told to all. Each
then says which point is the next it can stop at, and holds its loop until all have
said so; all stop at the furthest of these. So no process is left alone in a collective,
all save the same step, and a step costs nothing more than counting it.
"""

import contextlib
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import Interrupted
from bert_jax.runtime import signals

# Milliseconds that a wait may take: years, since process 0 may prepare data for days,
# and a run may go on for months. Who waits for the dead is ended by JAX.
_EVER = 10 * 365 * 24 * 3600 * 1000
_PARTING = 5.0  # seconds in which processes that fail leave together
_HINT = "every process ends, and the same command goes on from the last checkpoint"


class Group:
    """This process among the others.

    Two keys are set by whoever has something to say, the first one counts: `stop`, a
    signal's number; `end`, a failure's exit status and words. A thread waits for each.
    """

    def __init__(self, client: Any, index: int, count: int):
        self.index, self.count = index, count
        self.stop = _Stop(client, index, count)
        self._client = client
        self._waits = itertools.count()
        self._end = threading.Lock()  # held by whoever ends this process
        self._closing = False
        self._threads = [
            threading.Thread(target=self._listen, args=given, daemon=True)
            for given in (("stop", self.stop.agree), ("end", self._exit))
        ]
        for thread in self._threads:
            thread.start()

    def barrier(self) -> None:
        self._wait(self._client.wait_at_barrier, f"barrier/{next(self._waits)}")

    def all_true(self, value: bool) -> bool:
        """Whether it is true in every process; all ask."""
        question = f"no/{next(self._waits)}/"
        if not value:
            self._client.key_value_set(f"{question}{self.index}", "no")
        self.barrier()
        return not self._client.key_value_dir_get(question)

    def first(self, value: str) -> str:
        """What process 0 gives; all give something."""
        question = f"first/{next(self._waits)}"
        if self.index == 0:
            self._client.key_value_set(question, value)
        return self._wait(self._client.blocking_key_value_get, question)

    def close(self) -> None:
        """Leaves together with the others, after a barrier."""
        self._closing = True
        _shut_down()
        for thread in self._threads:
            thread.join()  # its wait is cancelled

    def fail(self, status: int, text: str) -> None:
        """Tells the others that this process ends, which is `leave`'s then."""
        self._end.acquire()  # and never released
        words = f"{status} process {self.index}: {' '.join(text.split())}"
        _tell(self._client, "end", words)

    def leave(self) -> None:
        """Leaves after a failure, together with those that still can."""

        def leave() -> None:
            with contextlib.suppress(OSError, RuntimeError):
                sys.stdout.flush()
                sys.stderr.flush()
                _shut_down()

        thread = threading.Thread(target=leave, daemon=True)
        thread.start()
        thread.join(_PARTING)

    def _wait(self, wait: Callable[..., Any], key: str) -> Any:
        """Waits in a thread: in compiled code no signal would be noticed."""
        wait = functools.partial(wait, key, _EVER)
        return signals.run_interruptibly(wait, signals.Stop())

    def _listen(self, key: str, act: Callable[[str], None]) -> None:
        try:
            act(self._client.blocking_key_value_get(key, _EVER))
        except RuntimeError as error:
            if not self._closing:
                time.sleep(3.0)  # mostly JAX ends this process first
                self._exit(f"1 process 0 cannot be reached ({str(error)[:150]})")

    def _exit(self, words: str) -> None:
        """Ends this process from a thread that listens."""
        self._end.acquire()
        status, _, text = words.partition(" ")
        os.write(2, f"error: {text}; {_HINT}\n".encode())
        self.leave()
        os._exit(int(status))


class _Stop(signals.Stop):
    """A signal that all processes act on at the same point; see above."""

    def __init__(self, client: Any, index: int, count: int):
        super().__init__()
        self._client, self._index, self._count = client, index, count
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

    def agree(self, signal_number: str) -> None:
        """Finds the point to stop at, together with the other processes."""
        with self._lock:
            mine = self._point if self._stays else self._point + 1
            self._client.key_value_set(f"point/{self._index}", str(mine))
            points = [
                int(self._client.blocking_key_value_get(f"point/{index}", _EVER))
                for index in range(self._count)
            ]
            self._agreed, self._last = int(signal_number), max(points)

    def _tell(self) -> None:
        if self.signal_number is not None and not self._told:
            self._told = True
            _tell(self._client, "stop", str(self.signal_number))

    def _raise_if_last(self) -> None:
        if self._last is not None and self._point >= self._last:
            raise Interrupted(self._agreed)


def _tell(client: Any, key: str, words: str) -> None:
    """Says it to all, where nobody has yet."""
    with contextlib.suppress(RuntimeError):  # another was first, or process 0 has gone
        client.key_value_set(key, words)


def _shut_down() -> None:
    """Disconnects from JAX's service, once all do: who goes alone counts as dead."""
    import jax

    jax.distributed.shutdown()
