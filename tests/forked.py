"""Programs forked from one server, each as cheap as its own work."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
# Small programs: compiling them well would take longer than running them.
QUICKLY_COMPILED = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_prefer_vector_width=128 "
    "--xla_cpu_copy_insertion_use_region_analysis=false"
)
if metadata.version("jaxlib").startswith("0.10."):  # a later XLA refuses the flag
    QUICKLY_COMPILED += " --xla_cpu_use_fusion_emitters=false"


class Forked:
    """A program with the interface of `subprocess.Popen` with text, as far as used
    here. Its standard input is `stdin`, or empty where that is None."""

    def __init__(self, news: socket.socket, stdin: int | None, out: int, err: int):
        """Takes the other ends of its pipes, and a socket for its id, then its end."""
        self._news, self._lock = news, threading.Lock()
        self.stdin = None if stdin is None else os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout, self.stderr = (
            os.fdopen(end, encoding="utf-8", errors="replace") for end in (out, err)
        )
        self.returncode: int | None = None
        self.pid = int(news.recv(100))

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired where it takes longer."""
        if not select.select([self._news], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
        with self._lock:
            if self.returncode is None:  # without news the server has died
                self.returncode = int(self._news.recv(100) or -signal.SIGKILL)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for its end and returns the rest of its output and error.

        Raises:
          subprocess.TimeoutExpired: It takes longer.
        """
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        texts = {}

        def read(stream: IO[str]) -> None:
            texts[stream] = stream.read()

        streams = (self.stdout, self.stderr)
        readers = [
            threading.Thread(target=read, args=(stream,), daemon=True)
            for stream in streams
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return texts[self.stdout], texts[self.stderr]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it, and the processes that it has started."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.send_signal(signal.SIGKILL)


class Server:
    """The process that forks. Any number of threads may use it.

    Args:
      environment: Environment of the server. JAX and other libraries read some
        variables when they are imported: a program that needs others there needs
        another server.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            # Without the first, NumPy has threads before the fork. The second is the
            # value that bert_jax sets before it imports the library, where it uses a
            # bucket.
            env={**environment, "OPENBLAS_NUM_THREADS": "1", "EPATH_USE_TF": "false"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        if not self._orders.recv(100):
            raise RuntimeError("the server of forked programs has not started")

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
    ) -> Forked:
        """Starts `python ARGV`, which begins with -m MODULE or -c TEXT.

        Args:
          env: Whole environment.
          stdin: Either subprocess.DEVNULL or subprocess.PIPE.
        """
        news, its_news = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, its_out = os.pipe()
        err, its_err = os.pipe()
        if stdin == subprocess.PIPE:
            its_in, given = os.pipe()
        else:
            its_in, given = os.open(os.devnull, os.O_RDONLY), None
        order = json.dumps({"argv": argv, "cwd": str(ROOT), "env": dict(env)}).encode()
        files = [its_news.detach(), its_in, its_out, its_err]
        try:
            socket.send_fds(self._orders, [order], files)
        finally:
            for file in files:
                os.close(file)
        return Forked(news, given, out, err)

    def close(self) -> None:
        """Kills the programs that still run, and ends the server."""
        self._orders.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
