"""Starts bert_jax.main, one run at a time, and waits for its end."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_jax.config import command_line, configuration
from bert_jax.runtime.storage import make_folder

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "bert_jax.main")
_LOOK_EVERY = 0.2  # seconds between two looks at the log
# Linux (PR_SET_PDEATHSIG, which exec keeps): SIGTERM when the parent has died.
_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(143)
os.execv(sys.argv[2], sys.argv[2:])
"""


def check(arguments: Sequence[str], *, has_steps: bool = True) -> None:
    """Checks a run's config before any run begins, as far as its data is not needed.

    Args:
      arguments: of bert_jax.main.
      has_steps: the config's steps are the run's.

    Raises:
      UserError: what the run would end with.
    """
    from bert_jax.training import optimizer  # slow

    line = command_line.parse(arguments)
    config = configuration.load(line.config, line.overrides)
    if has_steps and config.train.num_steps and not config.train.budget:
        optimizer.learning_rate_schedule(config)


def wait(
    command: Sequence[str],
    log: Path,
    keep: Sequence[int] = (),
    show: Callable[[bytes], object] = lambda text: None,
) -> int:
    """Runs a program to its end; passes signals on.

    If this process dies, of SIGKILL too, Linux sends the program SIGTERM, so that it
    saves and ends.

    Args:
      log: a file that gets what it prints, after what is there.
      keep: open files that it inherits.
      show: gets what the program has printed since the last look.

    Returns:
      Its exit status; less than 0 where a signal ended it.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if sys.platform == "linux":
        before = [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid())]
        command = [*before, *command]
    make_folder(log.parent)
    # It writes the file itself: a pipe would break when this process dies.
    with log.open("ab") as file, log.open("rb") as said:
        said.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=keep,
        )
        return _finish(process, lambda: show(said.read()))


def _finish(process: subprocess.Popen, look: Callable[[], object]) -> int:
    """Waits for the end of the process, and looks at its log meanwhile."""
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # by nohup
        numbers.append(signal.SIGHUP)
    before = {
        number: signal.signal(number, lambda number, _: process.send_signal(number))
        for number in numbers
    }
    ended = False
    try:
        while not ended:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_EVERY)
                    ended = True
                look()
            except KeyboardInterrupt:  # the program was sent it as well, and saves
                continue
        return process.returncode
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
