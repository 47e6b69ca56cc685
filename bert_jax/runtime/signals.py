"""SIGTERM (preemption), Ctrl-C and SIGHUP (a closed terminal) stop a run.

While a run trains, a signal only sets a flag, which the loop reads once a step. At any
other time the first one raises Interrupted at once. A second Ctrl-C is Python's.
"""

import contextlib
import itertools
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from bert_jax.errors import Interrupted
from bert_jax.runtime import processes

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_received: int | None = None
_deferred = False
_points = itertools.count()


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Handles the signals in this context. An ignored one stays ignored (nohup).

    Only the main thread can: in another one they stay as they are.
    """
    global _received
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received = None
    with contextlib.ExitStack() as stack:
        for number in SIGNALS:
            before = signal.getsignal(number)
            stack.callback(signal.signal, number, before)
            if before is not signal.SIG_IGN:
                signal.signal(number, _handle)
        yield


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Makes a signal in this context only set the flag that `raise_if_interrupted`
    reads."""
    global _deferred
    before, _deferred = _deferred, True
    try:
        yield
    finally:
        _deferred = before


def raise_if_interrupted() -> None:
    """Raises Interrupted if a signal has arrived. The processes of a run stop together.

    All must call it equally often: JAX picks the first call that none has passed.
    """
    stops = _received is not None
    if processes.process_count() > 1:
        from jax.experimental import multihost_utils

        stops = multihost_utils.reached_preemption_sync_point(next(_points))
    if stops:
        raise Interrupted(_received or signal.SIGTERM)


def _handle(number: int, _: FrameType | None) -> None:
    global _received
    is_first, _received = _received is None, _received or number
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)
    if is_first and not _deferred:
        raise Interrupted(number)
    if _deferred and processes.process_count() > 1 and number != signal.SIGTERM:
        signal.raise_signal(signal.SIGTERM)  # JAX notifies the other processes
