"""Processes on one machine: who is shown, who is ended, whose status counts."""

import os
import signal
import sys
import threading
import time

import pytest
from runs import LIMIT

from bert_jax.runtime.cluster import local

FOREVER = f"time.sleep({2 * LIMIT})"


def program(*each):
    """Process i runs the i-th of these lines of Python."""
    lines = "\n".join(f"if index == {i}: {line}" for i, line in enumerate(each))
    text = f"import os, signal, sys, time\nindex = int(os.environ['{ID}'])\n{lines}"
    return [sys.executable, "-c", text]


ID = "BERT_JAX_PROCESS_ID"


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(local, "_GRACE", 0.5)


def test_only_process_0_is_shown_and_each_knows_its_place(capfd):
    show = "print(*(os.environ[n] for n in names), os.environ['XLA_FLAGS'][-7:])"
    names = "names = ('BERT_JAX_PROCESSES', 'BERT_JAX_PROCESS_ID'); "
    assert local.run(3, 4, program(*[names + show] * 3)) == 0
    assert capfd.readouterr() == ("3 0 count=4\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("each", "grace", "status", "said"),
    [
        # The others are ended; process 0, which is, could not say why.
        (
            [FOREVER, "sys.exit('error: no data')"],
            0.5,
            1,
            "process 1: error: no data\n",
        ),
        (
            [FOREVER, "os.kill(os.getpid(), signal.SIGKILL)"],
            0.5,
            137,
            "process 1: ended by SIGKILL",
        ),
        # Process 0 has said it.
        (
            ["time.sleep(0.3); sys.exit('error: both')", "sys.exit('error: both')"],
            LIMIT,
            1,
            "error: both\n",
        ),
        (["sys.exit(3)", FOREVER], 0.5, 3, ""),
        # Where all go their way, nothing is ended.
        (["pass", "time.sleep(1)"], 0.1, 0, ""),
    ],
)
def test_the_first_that_fails(capfd, monkeypatch, each, grace, status, said):
    monkeypatch.setattr(local, "_GRACE", grace)
    start = time.monotonic()
    assert local.run(2, 1, program(*each)) == status
    assert time.monotonic() - start < LIMIT
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(said) and err.count("\n") == (1 if said else 0)


def test_a_signal_reaches_every_process(tmp_path, capfd):
    end = "signal.signal(15, lambda *_: (open(f'PATH/{index}', 'w'), os._exit(143)))"
    wait = f"{end}; open(f'PATH/ready{{index}}', 'w'); {FOREVER}"
    wait = wait.replace("PATH", str(tmp_path))

    def send():
        while len(list(tmp_path.glob("ready*"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    assert local.run(2, 1, program(wait, wait)) == 143
    thread.join()
    assert (tmp_path / "0").exists() and (tmp_path / "1").exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "argv",
    [
        *([], ["2"], ["2", "3", "--"], ["0", "--"], ["--devices=x", "2", "--"]),
    ],
)
def test_wrong_arguments(argv, capfd):
    assert local.main(argv) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
