"""SIGTERM is heard at once where the run only waits, and later where it works."""

import os
import signal
import threading

import pytest

from bert_jax import signals
from bert_jax.errors import Interrupted


@pytest.fixture(autouse=True)
def signals_as_before():
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    signals.raise_interrupted()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_work_is_not_interrupted():
    with signals.deferred(signals.Stop()) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        done = True
        with pytest.raises(Interrupted) as interrupted:
            stop.check()
    assert done and interrupted.value.signal_number == signal.SIGTERM


def test_waiting_is_interrupted_though_it_would_never_end():
    never = threading.Event()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    with signals.deferred(signals.Stop()) as stop:
        timer.start()
        with pytest.raises(Interrupted), stop.at_once():
            never.wait(60)
        assert stop.signal_number == signal.SIGTERM
    timer.join()


def test_a_signal_that_came_before_the_waiting_is_heard():
    with signals.deferred(signals.Stop()) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted), stop.at_once():
            pytest.fail("waits")
        with pytest.raises(Interrupted):  # the handlers from before are back
            os.kill(os.getpid(), signal.SIGINT)


def test_after_waiting_work_is_not_interrupted():
    with signals.deferred(signals.Stop()) as stop:
        with stop.at_once():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal_number == signal.SIGTERM


def test_nobody_who_guards_against_errors_catches_a_signal():
    assert not issubclass(Interrupted, Exception)
