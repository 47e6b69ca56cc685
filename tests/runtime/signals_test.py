"""SIGTERM is heard at once where the run only waits, and later where it works."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from runs import LIMIT, ROOT, finish, run, start

from bert_jax import main
from bert_jax.errors import Interrupted
from bert_jax.runtime import signals
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.workdir import checkpoint


def send(number):
    """To this thread, which handles it before it goes on. A signal to the process goes
    to any of its threads: two then need not arrive in their order."""
    signal.raise_signal(number)


@pytest.fixture(autouse=True)
def handlers():
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    bring_back = signals.remember()
    yield
    bring_back()
    signal.signal(signal.SIGHUP, ignored)


def test_work_is_not_interrupted():
    with signals.deferred(signals.Stop()) as stop:
        send(signal.SIGTERM)
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
            never.wait(LIMIT)
        assert stop.signal_number == signal.SIGTERM
    timer.join()


def test_a_signal_that_came_before_the_waiting_is_heard():
    with signals.deferred(signals.Stop()) as stop:
        send(signal.SIGINT)
        with pytest.raises(Interrupted), stop.at_once():
            pytest.fail("waits")


def test_after_waiting_work_is_not_interrupted():
    with signals.deferred(signals.Stop()) as stop:
        with stop.at_once():
            pass
        send(signal.SIGTERM)
        assert stop.signal_number == signal.SIGTERM


def test_a_hangup_that_was_ignored_stays_ignored(handlers):
    program = (
        "import os, signal\nfrom bert_jax.runtime import signals\nsignals.remember()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nsignals.check()\n"
    )

    def status(before):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, before),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return done.returncode, "stopped by signal 1" in done.stderr

    assert status(signal.SIG_IGN) == (0, False)
    assert status(signal.SIG_DFL) == (1, True)


def test_nobody_who_guards_against_errors_catches_a_signal():
    assert not issubclass(Interrupted, Exception)


def test_main_brings_the_handlers_back(capfd):
    mine = signal.getsignal(signal.SIGTERM)
    assert main.main(["--config=nowhere.py"]) == 2
    assert signal.getsignal(signal.SIGTERM) is mine
    assert "nowhere.py" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_second_signal_while_a_step_is_saved(
    micro, tmp_path, monkeypatch, number, status
):
    """A second SIGTERM changes nothing; who presses Ctrl-C twice does not wait."""
    batches, save = Pretraining.batches, checkpoint.Checkpoints.save

    def signalled(self, now, rows, seed):
        for index, batch in enumerate(batches(self, now, rows, seed), start=now):
            if index == 2:
                send(number)
            yield batch

    def saved(self, state, now):
        send(number)
        save(self, state, now)

    monkeypatch.setattr(Pretraining, "batches", signalled)
    monkeypatch.setattr(checkpoint.Checkpoints, "save", saved)
    _, err = run(micro, tmp_path / "run", status=status)
    whole = number != signal.SIGINT
    assert ("; the same command resumes from there" in err) == whole
    steps = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()]
    assert [name for name in steps if name.isdigit()] == ["2"] * whole


@pytest.mark.slow
def test_a_signal_while_predict_waits_for_rows(micro, plain):
    args = [f"--config={micro}", f"--workdir={plain}", "--mode=predict"]
    process = start(*args, "--config.predict.batch_size=1", stdin=subprocess.PIPE)
    ending = threading.Timer(LIMIT, process.kill)
    ending.start()
    process.stdin.write('{"text": "the [MASK]"}\n')
    process.stdin.flush()
    assert process.stdout.readline()  # and now it waits
    process.send_signal(signal.SIGTERM)
    _, err = finish(process, 143)
    ending.cancel()
    assert not {"Traceback", "Exception", "Fatal"} & set(err.replace(":", " ").split())
