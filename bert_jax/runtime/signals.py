"""SIGTERM (preemption), Ctrl-C and SIGHUP (a closed terminal) stop a run.

While a run trains, a signal is only noted, and the loop reads the note once a step. At
any other time the first one ends the process at once. No handler raises an exception:
Python drops those that are raised in a finalizer, such as a garbage collector's.
"""

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeAlias

from bert_jax.errors import Interrupted
from bert_jax.runtime import processes

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
Handler: TypeAlias = Callable[[int, FrameType | None], object]

_received: int | None = None
_defers = False
_clean_ups: list[Callable[[], object]] = []
_points = itertools.count()


def end_process(number: int, _: FrameType | None = None) -> None:
    """Ends the process by a signal, after what `clean_up_on_signal` has registered.

    Unlike the default action it also ends a container's first process.
    """
    try:
        while _clean_ups:  # a second signal continues with the rest
            _clean_ups.pop()()
    finally:
        os._exit(128 + number)


def set_handlers(handle: Handler = end_process) -> dict[int, Any]:
    """Sets the handler of the signals, and returns those before by signal.

    An ignored signal stays ignored (nohup). With several processes SIGTERM stays JAX's.
    Does nothing in a thread other than the main one, where Python allows none.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = SIGNALS if processes.process_count() == 1 else SIGNALS[1:]
    before = {number: signal.getsignal(number) for number in numbers}
    return {
        number: signal.signal(number, handle)
        for number in numbers
        if before[number] not in (signal.SIG_IGN, None)
    }


@contextlib.contextmanager
def handle_signals(handle: Handler = end_process) -> Iterator[None]:
    """Handles the signals in this context, as `set_handlers` does."""
    before = set_handlers(handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def clean_up_on_signal(function: Callable[[], object]) -> Iterator[None]:
    """Calls a function if a signal ends the process in this context, at any line."""
    _clean_ups.append(function)
    try:
        yield
    finally:
        _clean_ups.remove(function)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Makes a signal in this context only set the flag that `raise_if_interrupted`
    reads, also once at the end. A second Ctrl-C has the effect it had before."""
    global _defers, _received
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _: FrameType | None) -> None:
        global _received
        _received = _received or number
        if number == signal.SIGINT:
            signal.signal(number, before)
        if processes.process_count() > 1 and number != signal.SIGTERM:
            signal.raise_signal(signal.SIGTERM)  # JAX notifies the other processes

    _defers = True
    try:
        with handle_signals(note):
            yield
        raise_if_interrupted()
    finally:
        _defers, _received = False, None


def raise_if_interrupted() -> None:
    """Raises Interrupted if a signal has been noted. The processes of a run stop
    together.

    All must call it equally often: JAX picks the first call that none has passed.
    """
    stops = _received is not None
    if _defers and processes.process_count() > 1:
        from jax.experimental import multihost_utils

        stops = multihost_utils.reached_preemption_sync_point(next(_points))
    if stops:
        raise Interrupted(_received or signal.SIGTERM)
