"""A signal to any process of a run stops all of them at the same point.

JAX can stop all at one step (`reached_preemption_sync_point`), but for SIGTERM alone,
by a handler of its own that would take the signal from ours, and at steps only: an
evaluation, or a compilation of minutes, would outlast the half minute that a preempted
machine has.

The loop passes the same points in every process: the ends of steps, evaluation batches,
compilations. A signal to any process is told to all. Each then says which point is the
next it can stop at, and holds its loop until all have said so; all stop at the furthest
of these. So no process is left alone in a collective, all save the same step, and a
step costs nothing more than counting it.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import Interrupted
from bert_jax.runtime import signals

# Milliseconds that a wait may take: years, since process 0 may prepare data for days,
# and a run may go on for months. Who waits for the dead is ended by JAX.
EVER = 10 * 365 * 24 * 3600 * 1000


class Stop(signals.Stop):
    """A signal that all processes act on at the same point.

    Args:
      client: of JAX's coordination service.
      index: of this process.
      count: of all.
    """

    def __init__(self, client: Any, index: int, count: int):
        super().__init__()
        self.stops = False  # all do, at the point that this one is at
        self._client, self._index, self._count = client, index, count
        self._lock = threading.Lock()
        self._point = 0  # how many the loop has come to
        self._stays = False  # it is still at the last of them
        self._last: int | None = None  # the point to stop at, once all know
        self._agreed = 0  # the signal
        self._told = False

    def check(self) -> None:
        """A point of the loop; raises Interrupted where all processes stop."""
        with self.lasting() as check:
            check()

    @contextlib.contextmanager
    def lasting(self) -> Iterator[Callable[[], None]]:
        """A point that lasts as long as the block; gives what to call in it."""
        with self._lock:
            self._point += 1
            self._stays = True
            self._raise_if_last()

        def check() -> None:
            if self.signal_number is not None and not self._told:
                self._told = True
                tell(self._client, "stop", str(self.signal_number))
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
        """Finds the point to stop at with the others; what `stop` says, in a thread."""
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
    """Says it to all, where nobody has yet."""
    with contextlib.suppress(RuntimeError):  # another was first, or process 0 has gone
        client.key_value_set(key, words)
