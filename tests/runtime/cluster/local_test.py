"""Processes on one machine: who is shown, who gets signals, whose status counts."""

import os
import signal
import subprocess
import sys
import threading
import time

from bert_jax.runtime.cluster import local
from tests.runs import LIMIT

FOREVER = f"time.sleep({2 * LIMIT})"
ID = "BERT_JAX_PROCESS_ID"


def program(*each):
    """Process i runs the i-th of these lines of Python."""
    lines = "\n".join(f"if index == {i}: {line}" for i, line in enumerate(each))
    text = f"import os, signal, sys, time\nindex = int(os.environ['{ID}'])\n{lines}"
    return [sys.executable, "-c", text]


def test_local_shows_process_0_and_numbers_each(capfd):
    show = "print(*(os.environ[n] for n in names), os.environ['XLA_FLAGS'][-7:])"
    names = "names = ('BERT_JAX_PROCESSES', 'BERT_JAX_PROCESS_ID'); "
    assert local.run_processes(3, 4, program(*[names + show] * 3)) == 0
    assert capfd.readouterr() == ("3 0 count=4\n", "")


def test_signal_reaches_every_process(tmp_path, capfd):
    end = "signal.signal(15, lambda *_: (open(f'PATH/{index}', 'w'), os._exit(143)))"
    wait = f"{end}; open(f'PATH/ready{{index}}', 'w'); {FOREVER}"
    wait = wait.replace("PATH", str(tmp_path))

    def send():
        while len(list(tmp_path.glob("ready*"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    assert local.run_processes(2, 1, program(wait, wait)) == 143
    thread.join()
    assert (tmp_path / "0").exists() and (tmp_path / "1").exists()
    assert capfd.readouterr() == ("", "")


def test_signal_while_processes_start(monkeypatch):
    """Ends those that have started, and those that start later."""

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            if options["env"][ID] == "0":
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    assert local.run_processes(2, 1, program(FOREVER, FOREVER)) == 143
