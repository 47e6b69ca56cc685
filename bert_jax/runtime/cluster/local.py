"""N local processes: python -m bert_jax.runtime.cluster.local N [--devices=D] -- ...

Each has D simulated CPU devices (default 1). Only process 0's standard output is shown.
If one dies, JAX ends the others.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType


def main(argv: Sequence[str]) -> int:
    """Runs bert_jax.main in N processes. Returns the first failing one's status."""
    parser = argparse.ArgumentParser("local", usage="local N [--devices=D] -- ...")
    parser.add_argument("number", type=int)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("arguments", nargs="+")
    given = parser.parse_args(argv)
    program = [sys.executable, "-m", "bert_jax.main", *given.arguments]
    return run_processes(given.number, given.devices, program)


def run_processes(number: int, devices: int, program: Sequence[str]) -> int:
    """Runs `program`, which calls bert_jax.main, in `number` processes with
    `devices` simulated devices each. Returns the first exit status that is not 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
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
    received: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for process in processes:
            process.send_signal(number)

    with contextlib.ExitStack() as stack:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            stack.callback(signal.signal, each, signal.signal(each, forward))
        for index in range(number):
            process = subprocess.Popen(
                program,
                env={**common, "BERT_JAX_PROCESS_ID": str(index)},
                start_new_session=True,  # signals come only from here
                stdin=subprocess.DEVNULL if index else None,
                stdout=subprocess.DEVNULL if index else None,
            )
            processes.append(process)
            if received:  # perhaps while it started
                process.send_signal(received[0])
        statuses = [process.wait() for process in processes]
    status = next(filter(None, statuses), 0)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
