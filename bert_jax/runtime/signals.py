"""SIGTERM (preemption), Ctrl-C and SIGHUP (a closed terminal) stop a run.

While a run trains, a signal only sets a flag, which the loop reads once a step. At any
other time the first one raises Interrupted at once. A second Ctrl-C is Python's: it
raises KeyboardInterrupt.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from bert_jax.errors import Interrupted
from bert_jax.runtime import processes

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_received: int | None = None
_deferred = False


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Handles the signals in this context; an ignored one stays ignored (nohup)."""
    global _received
    _received = None
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """In this context a signal only sets the flag that `check` reads."""
    global _deferred
    before, _deferred = _deferred, True
    try:
        yield
    finally:
        _deferred = before


def check() -> None:
    """Raises Interrupted if a signal has arrived; the processes of a run stop together.

    Every process must call it the same number of times.
    """
    if processes.count() > 1:
        if processes.reached_stop():
            raise Interrupted(_received or signal.SIGTERM)
    elif _received is not None:
        raise Interrupted(_received)


def _handle(number: int, _: FrameType | None) -> None:
    global _received
    is_first, _received = _received is None, _received or number
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)
    if is_first and not _deferred:
        raise Interrupted(number)
    if _deferred and processes.count() > 1 and number != signal.SIGTERM:
        signal.raise_signal(signal.SIGTERM)  # JAX tells the other processes
