"""While a run trains, signals wait for the end of a step. Elsewhere they end it."""

import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_jax.errors import Interrupted
from bert_jax.runtime import signals
from tests.runs import LIMIT, ROOT, finish, start


def send(number):
    """Sends to this thread, which handles it before it continues. A process signal goes
    to any of its threads: two then need not arrive in their order."""
    signal.raise_signal(number)


@pytest.fixture(autouse=True)
def hangup():
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    yield
    signal.signal(signal.SIGHUP, ignored)


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_signal_waits_for_the_check_of_a_run(number):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as interrupted, signals.defer_signals():
        send(number)
        done = True
        signals.raise_if_interrupted()
    assert done and interrupted.value.signal_number == number
    assert signal.getsignal(number) is before
    signals.raise_if_interrupted()  # is forgotten


def test_signal_after_the_last_check_counts_too():
    with pytest.raises(Interrupted), signals.defer_signals():
        send(signal.SIGTERM)


def test_signal_in_a_finalizer_is_not_lost():
    with pytest.raises(Interrupted), signals.defer_signals():
        weakref.finalize(subject := threading.Event(), send, signal.SIGTERM)
        del subject
        signals.raise_if_interrupted()


def test_second_ctrl_c_is_of_python():
    with pytest.raises(KeyboardInterrupt), signals.defer_signals():
        send(signal.SIGINT)
        send(signal.SIGINT)


def test_hangup_that_was_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.handle_signals():
        send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_another_thread_handles_no_signals():
    before = signal.getsignal(signal.SIGTERM)

    def trains():
        with signals.defer_signals():
            assert signal.getsignal(signal.SIGTERM) is before

    with ThreadPoolExecutor(1) as pool:
        pool.submit(trains).result()


ENDS = {
    "anywhere": "send()",
    "finalizer": "a = Event(); weakref.finalize(a, send); del a",
    "garbage": "gc.callbacks.append(lambda *_: send()); gc.collect()",
    "cleaned": "with signals.clean_up_on_signal(lambda: print(7)): send()",
    "fails": "with signals.clean_up_on_signal(lambda: 1 / 0): send()",
    "again": "with signals.clean_up_on_signal(send): send()",
    "deferred": "with signals.defer_signals(): send(); send()",
}


@pytest.mark.parametrize("case", ENDS)
def test_signal_ends_the_process(case):
    """None of it raises: Python drops what a finalizer raises."""
    program = f"""
import gc, signal, weakref
from threading import Event
from bert_jax.runtime import signals
def send(): signal.raise_signal(signal.SIGINT)
signals.set_handlers()
{ENDS[case]}
print("continues")
"""
    done = subprocess.run(
        [sys.executable, "-u", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout == ("7\n" if case == "cleaned" else "")


@pytest.mark.slow
def test_signal_while_predict_waits_for_rows(micro, plain):
    args = [f"--config={micro}", f"--workdir={plain}", "--mode=predict"]
    process = start(*args, "--config.predict.batch_size=1", stdin=subprocess.PIPE)
    ending = threading.Timer(LIMIT, process.kill)
    ending.start()
    process.stdin.write('{"text": "the [MASK]"}\n' * 40)  # more than a window
    process.stdin.flush()
    assert process.stdout.readline()  # and now it waits
    process.send_signal(signal.SIGTERM)
    _, err = finish(process, 143)
    ending.cancel()
    assert not {"Traceback", "Exception", "Fatal"} & set(err.replace(":", " ").split())
