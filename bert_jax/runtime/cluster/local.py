"""N local processes: python -m bert_jax.runtime.cluster.local N [--devices=D] -- ...

Each process has D simulated CPU devices (default 1). Shows process 0's output, and the
last line of a process that fails before it does.
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
from collections.abc import Sequence
from types import FrameType

_GRACE = 10.0  # seconds for the others to end by themselves after one has failed


def main(argv: Sequence[str]) -> int:
    """Runs bert_jax.main in N processes; returns the status of the first that fails."""
    split = argv.index("--") if "--" in argv else 0
    options = " ".join(argv[:split])
    match = re.fullmatch(r"([1-9]\d*)(?: --devices=([1-9]\d*))?", options)
    if match is None:
        print("error: usage: local N [--devices=D] -- ARGUMENTS", file=sys.stderr)
        return 2
    program = [sys.executable, "-m", "bert_jax.main", *argv[split + 1 :]]
    return run(int(match[1]), int(match[2] or 1), program)


def run(number: int, devices: int, program: Sequence[str]) -> int:
    """Runs a program that calls bert_jax.main, `number` times at once, as one run.

    Args:
      devices: simulated devices of each process.
      program: the command line.

    Returns:
      The exit status of the first process that fails; 0 if none does.
    """
    flags = f"--xla_force_host_platform_device_count={devices}"
    address = f"127.0.0.1:{free_port()}"
    common = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "BERT_JAX_COORDINATOR": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,  # not reachable from outside
        "BERT_JAX_PROCESSES": str(number),
    }
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(number)]
        processes = [
            subprocess.Popen(
                program,
                env={**common, "BERT_JAX_PROCESS_ID": str(index)},
                start_new_session=True,  # signals come only from here
                stdin=subprocess.DEVNULL if index else None,
                stdout=log if index else None,
                stderr=log if index else None,
            )
            for index, log in enumerate(logs)
        ]
        for process in processes:
            stack.callback(process.kill)

        def forward(number: int, _: FrameType | None) -> None:
            for process in processes:
                process.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.getsignal(number))
            signal.signal(number, forward)
        index, status = _wait(processes)
        if index and (processes[0].poll() or 0) <= 0:  # else process 0 has said why
            logs[index].seek(0)
            lines = logs[index].read().decode(errors="replace").splitlines()
            reason = lines[-1] if lines else f"ended by {signal.Signals(-status).name}"
            print(f"process {index}: {reason}", file=sys.stderr)
    return status if status >= 0 else 128 - status


def _wait(processes: Sequence[subprocess.Popen]) -> tuple[int, int]:
    """The first process that fails and its status, once all have ended or some time
    later; (0, 0) if none does."""
    failed, end = None, 0.0
    while True:
        statuses = [process.poll() for process in processes]
        if failed is None and any(statuses):
            failed = next((i, status) for i, status in enumerate(statuses) if status)
            end = time.monotonic() + _GRACE
        if None not in statuses or (failed and time.monotonic() > end):
            return failed or (0, 0)
        time.sleep(0.05)


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
