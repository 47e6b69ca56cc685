"""A signal to any process of a run stops all of them at the same point.

JAX can stop all at one step (`reached_preemption_sync_point`), but only for SIGTERM,
with its own handler in place of ours, and only at steps: an evaluation, or a
compilation of minutes, would outlast the half minute that a preempted machine has.

The loop passes the same points in every process: the ends of steps, evaluation batches,
compilations. A process that gets a signal announces it to all. Each process publishes
the next point where it can stop and holds its loop until all have published theirs; all
stop at the latest of these points. So no process is left alone in a collective, all
save the same step, and a step costs only a counter.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import Interrupted
from bert_jax.runtime import signals

# Timeout of a wait, milliseconds: years, since process 0 may prepare data for days and
# a run may last months. If a process dies, JAX ends those that wait for it.
EVER = 10 * 365 * 24 * 3600 * 1000


class Stop(signals.Stop):
    """A signal that all processes act on at the same point.

    Args:
      client: of JAX's coordination service.
      index: of this process.
      count: number of processes.
    """

    def __init__(self, client: Any, index: int, count: int):
        super().__init__()
        self.stops = False  # whether all processes stop at the current point
        self._client, self._index, self._count = client, index, count
        self._lock = threading.Lock()
        self._point = 0  # number of points that the loop has reached
        self._stays = False  # whether the loop is still at the last one
        self._last: int | None = None  # the point to stop at, once agreed
        self._agreed = 0  # the signal
        self._announced = False

    def check(self) -> None:
        """A point of the loop; raises Interrupted if all processes stop here."""
        with self.lasting() as check:
            check()

    @contextlib.contextmanager
    def lasting(self) -> Iterator[Callable[[], None]]:
        """A point that lasts as long as the block; yields a check to call in it."""
        with self._lock:
            self._point += 1
            self._stays = True
            self._raise_if_last()

        def check() -> None:
            if self.signal_number is not None and not self._announced:
                self._announced = True
                tell(self._client, "stop", str(self.signal_number))
            with self._lock:
                self._raise_if_last()

        yield check
        with self._lock:
            self._stays = False
            self._raise_if_last()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Does nothing: a process must not leave alone, so the wait runs to its end."""
        yield

    def agree(self, signal_number: str) -> None:
        """Agrees with the others on the point to stop at; in a thread, on `stop`."""
        with self._lock:
            mine = self._point if self._stays else self._point + 1
            self._client.key_value_set(f"point/{self._index}", str(mine))
            points = [
                int(self._client.blocking_key_value_get(f"point/{index}", EVER))
                for index in range(self._count)
            ]
            self._agreed, self._last = int(signal_number), max(points)

    def _raise_if_last(self) -> None:
        if self._last is not None and self._point >= self._last:
            self.stops = True
            raise Interrupted(self._agreed)


def tell(client: Any, key: str, words: str) -> None:
    """Sets a key that all processes see, unless another process has."""
    with contextlib.suppress(RuntimeError):  # another was first, or process 0 is gone
        client.key_value_set(key, words)
