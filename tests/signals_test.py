"""SIGTERM is heard at once where the run only waits, and later where it works."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bert_jax import main, signals
from bert_jax.errors import Interrupted

ROOT = Path(__file__).resolve().parent.parent


def send(number):
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def handlers():
    bring_back = signals.remember()
    yield
    bring_back()


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
        "import os, signal\nfrom bert_jax import signals\nsignals.remember()\n"
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


# A run whose saves take long.
SLOW = """
import sys, time
from bert_jax import checkpoint, main

save = checkpoint.Checkpoints.save

def slow(self, state, now):
    print("saving", flush=True)
    time.sleep(2)
    save(self, state, now)

checkpoint.Checkpoints.save = slow
status = main.main(sys.argv[1:])
print("ended", flush=True)
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        ([signal.SIGTERM, signal.SIGTERM], 143),
        ([signal.SIGINT, signal.SIGINT], 130),
    ],
    ids=lambda value: (
        "-".join(n.name for n in value) if isinstance(value, list) else ""
    ),
)
def test_a_second_signal_while_a_step_is_saved(micro, tmp_path, numbers, status):
    flags = os.environ["XLA_FLAGS"].replace("count=8", "count=1")
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", SLOW, f"--config={micro}"),
            *(f"--workdir={tmp_path / 'run'}", "--config.train.num_steps=100000"),
            "--config.checkpoint.save_every=100000",
        ],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        path = tmp_path / "run" / "metrics.jsonl"
        while not path.exists() or not path.read_text():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(numbers[0])
        assert process.stdout.readline() == "saving\n"
        process.send_signal(numbers[1])
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == status, err
    assert out == "ended\n" and "Traceback" not in err
    whole = numbers[1] != signal.SIGINT
    assert ("; the same command goes on from there" in err) == whole
    steps = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()]
    assert len([name for name in steps if name.isdigit()]) == whole


MOMENTS = random.Random(11)


@pytest.mark.parametrize("mode", ["train", "describe", "predict", "export"] * 2)
def test_a_signal_while_the_program_starts(micro, plain, tmp_path, mode):
    number = MOMENTS.choice(signals.SIGNALS)
    # Describing and exporting so small a model end soon.
    seconds = MOMENTS.uniform(0.3, 1.2 if mode in ("describe", "export") else 3.0)
    workdir = tmp_path if mode in ("train", "describe") else plain
    args = [f"--config={micro}", f"--workdir={workdir}", f"--mode={mode}"]
    if mode == "train":
        args.append("--config.train.num_steps=100000")
    if mode == "export":
        args.append(f"--output={tmp_path / 'exported'}")
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax.main", *args],
        cwd=ROOT,
        stdin=subprocess.PIPE,  # predict waits for rows
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(seconds)
    ended = process.poll() is not None
    process.send_signal(number)
    try:
        process.wait(timeout=120)
    finally:
        process.kill()
    _, err = process.communicate()
    assert not ended, f"the program took less than {seconds} s: {err}"
    assert process.returncode == 128 + number, f"{number} after {seconds} s: {err}"
    assert not {"Traceback", "Exception", "Fatal"} & set(err.replace(":", " ").split())
