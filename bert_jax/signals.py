"""SIGTERM (preemption) and Ctrl-C: noticed at once, acted on when state is whole."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

from bert_jax.errors import Interrupted

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Result = TypeVar("Result")


class Stop:
    """Remembers the signal that arrived."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self.raises = False

    def check(self) -> None:
        """Raises Interrupted if a signal has arrived."""
        if self.signal_number is not None:
            raise Interrupted(self.signal_number)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Within it a signal raises Interrupted: for waiting, which changes nothing and
        may take for ever."""
        self.raises = True
        try:
            self.check()
            yield
        finally:
            self.raises = False

    @contextlib.contextmanager
    def lasting(self) -> Iterator[Callable[[], None]]:
        """For a stretch of time that may be given up; gives what to call meanwhile."""
        yield self.check


def raise_interrupted() -> None:
    """From now on SIGTERM and Ctrl-C raise Interrupted wherever the program is."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    for number in SIGNALS:
        signal.signal(number, handler)


@contextlib.contextmanager
def deferred(stop: Stop) -> Iterator[Stop]:
    """Within it, SIGTERM and Ctrl-C are only remembered; a second one goes through."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def remember(number: int, frame: FrameType | None) -> None:
        stop.signal_number = number
        restore()
        if stop.raises:
            raise Interrupted(number)

    for number in SIGNALS:
        signal.signal(number, remember)
    try:
        yield stop
    finally:
        restore()


def run_interruptibly(function: Callable[[], Result], stop: Stop) -> Result:
    """Calls a function that cannot be interrupted, such as a compilation.

    It runs in a thread that is left behind when a signal arrives: a preempted machine
    gives half a minute, and compiling a large model can take longer.

    Raises:
      Interrupted: a signal arrived first.
    """
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    with stop.lasting() as check:
        while thread.is_alive():
            thread.join(0.1)
            check()
    if failure:
        raise failure[0]
    return outcome[0]
