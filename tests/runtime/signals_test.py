"""SIGTERM is heard at once where the run only waits, and later where it works."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from runs import LIMIT, ROOT, finish, run, start, start_anew

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
            never.wait(60)
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


@pytest.mark.parametrize("first", signals.SIGNALS)
def test_only_a_second_ctrl_c_ends_what_the_first_signal_began(first):
    with signals.deferred(signals.Stop()) as stop:
        send(first)
        send(signal.SIGTERM)
        send(signal.SIGHUP)
        send(signal.SIGTERM)
        assert stop.signal_number == first
        if first != signal.SIGINT:
            send(signal.SIGINT)
        with pytest.raises(Interrupted):
            send(signal.SIGINT)
    assert stop.signal_number == first


def test_the_cleaning_up_after_a_signal_is_not_interrupted_by_the_next():
    signals.raise_interrupted()
    cleaned = False
    with pytest.raises(Interrupted) as interrupted:
        try:
            send(signal.SIGTERM)
        finally:
            send(signal.SIGTERM)
            send(signal.SIGHUP)
            cleaned = True
    assert cleaned and interrupted.value.signal_number == signal.SIGTERM


def test_a_signal_before_a_stretch_of_work_is_heard_in_it():
    send(signal.SIGTERM)
    with signals.deferred(signals.Stop()) as stop, pytest.raises(Interrupted):
        stop.check()
    with pytest.raises(Interrupted):
        signals.raise_interrupted()


def test_nothing_is_raised_while_a_module_is_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_module.py").write_text(
        "import os, time\nos.kill(os.getpid(), 15)\ntime.sleep(0.2)\nwhole = True\n"
    )
    signals.raise_interrupted()
    with pytest.raises(Interrupted):
        import slow_module  # type: ignore[import-not-found]

        for _ in range(100):
            time.sleep(0.1)
    assert slow_module.whole
    assert sys.modules["slow_module"].whole


class Finalised:
    def __del__(self):
        send(signal.SIGTERM)
        time.sleep(0.01)


def test_a_signal_that_is_lost_in_a_finaliser_comes_again(capfd):
    signals.raise_interrupted()
    with pytest.raises(Interrupted):
        Finalised()
        for _ in range(100):
            time.sleep(0.1)
    assert capfd.readouterr().err == ""


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
            timeout=60,
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


# Sends itself a signal when it begins to import a module, then goes on as main does.
STARTS = """
import os, runpy, sys
module, number = sys.argv[1], int(sys.argv[2])

class Finder:
    def find_spec(self, name, path, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)

finder = Finder()
sys.meta_path.insert(0, finder)
sys.argv[1:] = sys.argv[3:]
try:
    runpy.run_module("bert_jax.main", run_name="__main__", alter_sys=True)
finally:
    assert finder not in sys.meta_path, f"{module} is not imported"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "module", "number"),
    [
        ("train", "absl", signal.SIGTERM),
        ("describe", "jax._src.lax.lax", signal.SIGINT),
        ("export", "orbax.checkpoint", signal.SIGHUP),
        ("predict", "bert_jax.predict", signal.SIGTERM),
    ],
)
def test_a_signal_while_the_program_starts(
    micro, plain, tmp_path, mode, module, number
):
    workdir = tmp_path if mode in ("train", "describe") else plain
    args = [f"--config={micro}", f"--workdir={workdir}", f"--mode={mode}"]
    if mode == "export":
        args.append(f"--output={tmp_path / 'exported'}")
    program = ["-c", STARTS, module, str(int(number))]
    out, err = finish(start_anew(*args, program=program), 128 + number)
    assert not {"Traceback", "Exception", "Fatal"} & set(err.replace(":", " ").split())
    assert out == "" and not list(tmp_path.iterdir())


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
