"""Signals to a program that starts: each is heard, at every moment.

A real process is started, and gets SIGTERM, SIGINT or SIGHUP in its first seconds. It
must end with 143, 130 or 129. Before the program has asked for the signal the system,
or Python, ends it by the signal; whether it has asked is read in /proc.
"""

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.forked import Server, catches
from tests.system.inputs import Result
from tests.system.micro_runs import Stages

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SECONDS = 90.0
# None ends by itself in the time, but for describe and export.
COMMANDS = {
    "train": ["--config=in/micro.py", "--config.train.num_steps=100000"],
    "predict": ["--mode=predict"],
    "describe": ["--config=in/micro.py", "--mode=describe", "--output=out.json"],
    "prepare": ["--config=in/micro.py", "--mode=prepare"],
    "evaluate": ["--mode=evaluate"],
    "export": ["--mode=export", "--output=exported"],
}
_WRONG = ("Traceback", "Exception", "Fatal", "terminate called", "Warning")


def fault(mode: str, number: int, caught: bool, status: int, err: str) -> str:
    """What is wrong with the end; empty where nothing is.

    Args:
      caught: the program had asked for the signal when it was sent.
      err: what is on standard error.
    """
    before = (-number, 128 + number)  # Python says KeyboardInterrupt then
    allowed = (128 + number,) if caught else before
    if status == 0 and mode in ("describe", "prepare", "evaluate", "export"):
        return ""  # it was through: looked at by the caller
    if status not in allowed:
        return f"status {status}"
    words = [word for word in _WRONG if word in err]
    return f"{words[0]} on standard error" if words and caught else ""


def one(
    server: Server,
    stages: Stages,
    tasks: tuple[str, ...],
    number: int,
    seed: int,
    base: Path,
) -> Result:
    """Starts a program in the folder `base`, and sends it a signal."""
    rng = random.Random(f"{seed}:signal:{number}")
    mode, sent = rng.choice([*COMMANDS, "train", "predict"]), rng.choice(NUMBERS)
    task = rng.choice([task for task in tasks if task != "ax"])
    stage = "inputs" if mode in ("train", "describe", "prepare") else "run"
    folder = base / "case"
    stages.copy(task, stage, folder)
    moment = rng.uniform(0, 2.5 if mode in ("describe", "prepare", "export") else 5.0)
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax.main", "--workdir=run", *COMMANDS[mode]],
        cwd=folder,
        env=server.environment,
        stdin=subprocess.PIPE,  # predict waits for rows
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    description = f"{mode} of {task}, {sent.name} after {moment:.3f} s"
    try:
        time.sleep(moment)
        caught = catches(process.pid)
        if process.poll() is not None or caught is None:
            process.communicate()
            return Result(
                f"s{number}", f"{mode} {sent.name}", description, "was through", ()
            )
        process.send_signal(sent)
        sent_at = time.monotonic()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return Result(
                f"s{number}", f"{mode} {sent.name}", description, "failed", ("hangs",)
            )
        took = time.monotonic() - sent_at
    finally:
        process.kill()
        err = process.communicate()[1].decode(errors="replace")
    status = process.returncode
    found = fault(mode, sent, caught, status, err)
    if status == 0 and not found and took > 1.0:
        found = f"status 0, {took:.1f} s after the signal"
    ended = {0: "was through", -sent: "before it began"}.get(status, "heard")
    cause, faults = (
        f"{mode} {sent.name}",
        (f"{found}: {err[-300:]!r}",) if found else (),
    )
    return Result(
        f"s{number}", cause, description, "failed" if found else ended, faults
    )


def hear() -> None:
    """Gives this process, and those that it starts, the signals that it was started to
    ignore (by nohup, or by a shell's &); in the main thread."""
    for number in NUMBERS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def trial(
    server: Server, stages: Stages, tasks: tuple[str, ...], seed: int
) -> Callable[[int], list[Result]]:
    """A function that sends the signal of a number, and leaves nothing behind."""

    def attempt(number: int) -> list[Result]:
        base = Path(tempfile.mkdtemp(prefix="bert_jax.signal."))
        try:
            return [one(server, stages, tasks, number, seed, base)]
        finally:
            shutil.rmtree(base, ignore_errors=True)

    return attempt
