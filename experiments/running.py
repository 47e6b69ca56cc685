"""Starts bert_jax.main, one run at a time, and waits for its end."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from bert_jax.runtime.storage import make_folder

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = (sys.executable, "-m", "bert_jax.main")


def wait(command: Sequence[str], log: Path | None = None) -> int:
    """Runs a program to its end, what it prints on stderr; SIGTERM is passed on.

    Args:
      log: a file that gets a copy of what it prints, after what is there.

    Returns:
      Its exit status; less than 0 where a signal ended it.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
        stdout=2 if log is None else subprocess.PIPE,
        stderr=None if log is None else subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": path},
    )

    def pass_on(number: int, frame: Any) -> None:
        del frame
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        with _copied(process.stdout, log) as copy:
            while True:
                try:
                    copy()
                    return process.wait()
                except KeyboardInterrupt:  # the program was sent it as well, and saves
                    continue
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _copied(stream: Any, log: Path | None) -> Iterator[Any]:
    """Gives a function that copies a stream to stderr and the log until its end."""
    if log is None:
        yield lambda: None
        return
    make_folder(log.parent)
    with log.open("ab") as file:
        yield lambda: _copy(stream, file)


def _copy(stream: Any, file: BinaryIO) -> None:
    # By pieces as they come, so that a line that is being written is seen.
    while piece := stream.read1(1 << 16):
        file.write(piece)
        file.flush()
        sys.stderr.buffer.write(piece)
        sys.stderr.flush()
