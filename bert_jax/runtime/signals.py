"""Handles SIGTERM (preemption), Ctrl-C and SIGHUP (a closed terminal): remembers them
at once, acts when the state is consistent.

Python runs a handler between two bytecodes of the main thread, even where compiled code
has called back into Python: during an import, inside JAX, in a finalizer. An exception
raised there is lost, or aborts the process. So a handler first remembers the signal. It
raises Interrupted only if no compiled code is on the stack, and retries until then.
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

_AGAIN = 0.05  # seconds until the retry of a signal that could not raise
# Libraries where an exception is unsafe: compiled code runs imports, and XLA calls back
# into Python.
_COMPILED = ("importlib", "_frozen_importlib", "jax", "jaxlib")

Result = TypeVar("Result")


class Stop:
    """Remembers the first signal that arrived."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self.raises = False

    def check(self) -> None:
        """Raises Interrupted if a signal has arrived."""
        if self.signal_number is not None:
            raise Interrupted(self.signal_number)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """In this context a signal raises Interrupted: for waits, which change nothing
        and may take forever."""
        self.raises = True
        try:
            self.check()
            yield
        finally:
            self.raises = False

    @contextlib.contextmanager
    def lasting(self) -> Iterator[Callable[[], None]]:
        """A context for long work that may be abandoned; yields a check to call."""
        yield self.check


class _Process(Stop):
    """The signals that have arrived since the handlers were set."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = 0  # number of Ctrl-C
        self.exits = True  # at a second one, where it cannot raise
        self.deferred: Stop | None = None  # of the innermost `deferred` block
        self.hook = sys.unraisablehook


_process = _Process()


def remember(*, exits: bool = True) -> Callable[[], None]:
    """Sets handlers that only remember signals, until `check` or `raise_interrupted`.

    An ignored SIGHUP stays ignored (nohup).

    Args:
      exits: a second Ctrl-C ends the process where it cannot raise.

    Returns:
      A function that restores the previous handlers.
    """
    global _process
    if signal.getsignal(signal.SIGTERM) is _handle:
        _process.raises = False
        return lambda: None
    _process = process = _Process()
    process.exits = exits
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
    """From now on a signal raises Interrupted, as soon as it is safe.

    Raises:
      Interrupted: a signal has arrived.
    """
    _process.raises = True
    check()


def check() -> None:
    """Raises Interrupted if a signal has arrived."""
    _process.check()


def insisted() -> bool:
    """Whether Ctrl-C came twice: the user then does not wait for a save."""
    return _process.interrupts > 1


@contextlib.contextmanager
def deferred(stop: Stop) -> Iterator[Stop]:
    """In this context signals are only remembered; only a second Ctrl-C acts at once.

    On preemption the platform sends SIGTERM, and the operating system sends it again at
    shutdown: the second one must not interrupt the save that the first one started.
    """
    stop.signal_number = _process.signal_number
    before, _process.deferred = _process.deferred, stop
    try:
        yield stop
    finally:
        _process.deferred = before


def run_interruptibly(function: Callable[[], Result], stop: Stop) -> Result:
    """Calls a function that cannot be interrupted, such as a compilation.

    It runs in a thread, which is abandoned when a signal arrives: a preempted machine
    has half a minute left, and compiling a large model can take longer.

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
        # After two Ctrl-C the user does not want to wait for a save or an import.
        works = _process.raises or _process.deferred
        if not works or _in_compiled(frame):
            if not _process.exits:
                return
            os._exit(128 + number)
        raise Interrupted(number)


def _try(_: int, frame: FrameType | None) -> None:
    """Raises Interrupted if that is safe now; otherwise retries later."""
    number = _process.signal_number
    if number is None or not (_process.deferred or _process).raises:
        return
    if _in_compiled(frame):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        return
    raise Interrupted(number)


def _in_compiled(frame: FrameType | None) -> bool:
    """Whether compiled code, which cannot handle an exception, called this frame."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.partition(".")[0] in _COMPILED:
            return True
        frame = frame.f_back
    return False


def _lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """Handles an exception in a finalizer or a callback, which nothing can catch."""
    if isinstance(unraisable.exc_value, Interrupted):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
    else:
        _process.hook(unraisable)
