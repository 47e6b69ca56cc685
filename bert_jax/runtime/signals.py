"""SIGTERM (preemption), Ctrl-C and SIGHUP (a terminal that is closed): noticed at once,
acted on when state is whole.

Python calls a handler between two bytecodes of the main thread, so wherever compiled
code calls Python back: while a module is imported, inside JAX, in a finaliser. An
exception raised there is lost, or ends the process. So a signal is remembered first of
all; it raises Interrupted only where Python alone is under way, and until it has come
to such a place it is tried again.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

from bert_jax.errors import Interrupted

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_AGAIN = 0.05  # seconds until a signal that could not raise is tried again
# Libraries that do not bear an exception anywhere: modules are initialised by compiled
# code, and XLA calls back.
_COMPILED = ("importlib", "_frozen_importlib", "jax", "jaxlib")

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


class _Process(Stop):
    """What has arrived since the handlers are there."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = 0  # how often Ctrl-C
        self.deferred: Stop | None = None  # of the innermost such block
        self.hook = sys.unraisablehook


_process = _Process()


def remember() -> Callable[[], None]:
    """From now on signals are only remembered, until `check` or `raise_interrupted`.

    SIGHUP stays ignored where it is (nohup).

    Returns:
      what brings back the handlers from before.
    """
    global _process
    if signal.getsignal(signal.SIGTERM) is _handle:
        _process.raises = False
        return lambda: None
    _process = process = _Process()
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        signal.signal(number, _try if number == signal.SIGALRM else _handle)
    sys.unraisablehook = _lost

    def bring_back() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = process.hook

    return bring_back


def raise_interrupted() -> None:
    """From now on a signal raises Interrupted, as soon as it can be raised.

    Raises:
      Interrupted: one has arrived.
    """
    _process.raises = True
    check()


def check() -> None:
    """Raises Interrupted if a signal has arrived."""
    _process.check()


def insisted() -> bool:
    """Whether Ctrl-C has come twice: who asks twice does not wait for a save."""
    return _process.interrupts > 1


@contextlib.contextmanager
def deferred(stop: Stop) -> Iterator[Stop]:
    """Within it signals are only remembered; of more, a second Ctrl-C goes through.

    A platform that takes a machine away sends SIGTERM, and its operating system sends
    it again when it shuts down: that must not end what the first one has begun.
    """
    stop.signal_number = _process.signal_number
    before, _process.deferred = _process.deferred, stop
    try:
        yield stop
    finally:
        _process.deferred = before


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


def _handle(number: int, frame: FrameType | None) -> None:
    is_first = _process.signal_number is None
    _process.interrupts += number == signal.SIGINT
    if is_first:
        _process.signal_number = number
        if _process.deferred:
            _process.deferred.signal_number = number
        _try(number, frame)
    elif number == signal.SIGINT and _process.interrupts == 2:
        # Who asks twice does not wait for a save, nor for an import.
        works = _process.raises or _process.deferred
        if not works or _in_compiled(frame):
            os._exit(128 + number)
        raise Interrupted(number)


def _try(_: int, frame: FrameType | None) -> None:
    """Raises Interrupted where it may be raised now."""
    number = _process.signal_number
    if number is None or not (_process.deferred or _process).raises:
        return
    if _in_compiled(frame):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        return
    raise Interrupted(number)


def _in_compiled(frame: FrameType | None) -> bool:
    """Whether code that does not bear an exception waits for this frame to return."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.partition(".")[0] in _COMPILED:
            return True
        frame = frame.f_back
    return False


def _lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """An exception in a finaliser or a callback, which nobody can catch."""
    if isinstance(unraisable.exc_value, Interrupted):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
    else:
        _process.hook(unraisable)
