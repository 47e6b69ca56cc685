"""While a run trains, signals wait for the end of a step. Elsewhere they end it."""

import signal
import subprocess
import threading

import pytest
from runs import LIMIT, finish, start

from bert_jax import main
from bert_jax.errors import Interrupted
from bert_jax.runtime import signals


def send(number):
    """Sends to this thread, which handles it before it continues. A process signal goes
    to any of its threads: two then need not arrive in their order."""
    signal.raise_signal(number)


@pytest.fixture
def handlers():
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    with signals.handle_signals():
        yield
    signal.signal(signal.SIGHUP, ignored)


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_signal_waits_for_the_check_of_a_run(handlers, number):
    with signals.defer_signals():
        send(number)
        done = True
        with pytest.raises(Interrupted) as interrupted:
            signals.raise_if_interrupted()
    assert done and interrupted.value.signal_number == number


def test_elsewhere_a_signal_acts_at_once_and_only_once(handlers):
    with pytest.raises(Interrupted):
        send(signal.SIGTERM)
    send(signal.SIGTERM)
    with pytest.raises(Interrupted):
        signals.raise_if_interrupted()


def test_second_ctrl_c_is_of_python(handlers):
    with signals.defer_signals():
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_main_brings_the_handlers_back(capfd):
    mine = signal.getsignal(signal.SIGTERM)
    assert main.main(["--config=nowhere.py"]) == 2
    assert signal.getsignal(signal.SIGTERM) is mine
    assert "nowhere.py" in capfd.readouterr().err


def test_hangup_that_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.handle_signals():
        send(signal.SIGHUP)
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


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
