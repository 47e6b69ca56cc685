"""N local processes: python -m bert_jax.runtime.cluster.local N -- ARGUMENTS

Each process has D simulated CPU devices (default 1). Shows process 0's output; if
another process fails first, shows its error.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from bert_jax.errors import UserError

_USAGE = "local N [--devices=D] -- ARGUMENTS: N and D are whole numbers, 1 to 9999"

# Seconds for the other processes to end by themselves after one has failed.
_GRACE = 10.0


def main(argv: Sequence[str]) -> int:
    """Runs bert_jax.main in N processes; returns the status of the first that fails."""
    try:
        number, devices, arguments = _parse(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run(number, devices, [sys.executable, "-m", "bert_jax.main", *arguments])


def run(number: int, devices: int, program: Sequence[str]) -> int:
    """Runs a program that calls bert_jax.main, `number` times at once, as one run.

    Args:
      number: of processes.
      devices: simulated devices of each process.
      program: the command line.

    Returns:
      The exit status of the first process that fails; 0 if none does.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _started(number, devices, program, folder) as processes:
            return _wait(processes, folder)


def _parse(argv: Sequence[str]) -> tuple[int, int, list[str]]:
    if "--" not in argv:
        raise UserError(_USAGE)
    options, rest = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    words = [word for word in options if not word.startswith("--devices=")]
    devices = [w.partition("=")[2] for w in options if w.startswith("--devices=")] or [
        "1"
    ]
    numbers = [*words, *devices]
    if len(words) != 1 or len(devices) != 1:
        raise UserError(_USAGE)
    if wrong := [n for n in numbers if not re.fullmatch("[1-9][0-9]{0,3}", n)]:
        raise UserError(f"local: {wrong[0][:80]!r} is no such number; {_USAGE}")
    return int(numbers[0]), int(numbers[1]), list(rest)


@contextlib.contextmanager
def _started(
    number: int, devices: int, program: Sequence[str], folder: Path
) -> Iterator[list[subprocess.Popen]]:
    """Starts the processes, forwards signals to them, and kills them at the end."""
    address = f"127.0.0.1:{free_port()}"
    flags = f"--xla_force_host_platform_device_count={devices}"
    common = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "BERT_JAX_COORDINATOR": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,  # not reachable from outside
        "BERT_JAX_PROCESSES": str(number),
    }
    processes: list[subprocess.Popen] = []

    def forward(signal_number: int, frame: FrameType | None) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal_number)

    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {n: signal.getsignal(n) for n in handled}
    if before[signal.SIGHUP] is signal.SIG_IGN:  # nohup
        del before[signal.SIGHUP]
    for signal_number in before:
        signal.signal(signal_number, forward)
    try:
        for index in range(number):
            with (folder / str(index)).open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        program,
                        env={**common, "BERT_JAX_PROCESS_ID": str(index)},
                        start_new_session=True,  # Ctrl-C comes only from `forward`
                        stdin=subprocess.DEVNULL if index else None,
                        stdout=log if index else None,
                        stderr=log if index else None,
                    )
                )
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


def _wait(processes: Sequence[subprocess.Popen], folder: Path) -> int:
    """Waits until all have ended, or until _GRACE seconds after the first failure."""
    first: tuple[int, int] | None = None
    end = 0.0
    while True:
        statuses = [process.poll() for process in processes]
        if first is None:
            first = next(((i, s) for i, s in enumerate(statuses) if s), None)
            end = time.monotonic() + _GRACE
        if None not in statuses or (first and time.monotonic() >= end):
            break
        time.sleep(0.05)
    if first is None:
        return 0
    index, status = first
    if (statuses[0] or 0) <= 0:  # otherwise process 0 has printed its error already
        for line in _reasons(index, status, folder):
            print(line, file=sys.stderr)
    return status if status > 0 else 128 - status


def _reasons(index: int, status: int, folder: Path) -> list[str]:
    """The lines to print about a failed process."""
    if status < 0:
        name = signal.Signals(-status).name
        return [
            f"error: process {index} was ended by {name}; the others are ended too; "
            "run the same command again to resume from the last checkpoint"
        ]
    lines = (folder / str(index)).read_text(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("error: ")][-1:]
    return [f"process {index}: {line}" for line in errors or lines[-20:]]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
