"""Programs forked from one server, each as cheap as its own work."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
# Small programs: compiling them well would take longer than running them.
QUICKLY_COMPILED = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
    "--xla_cpu_prefer_vector_width=128 "
    "--xla_cpu_copy_insertion_use_region_analysis=false"
)


class Forked:
    """A program with the interface of `subprocess.Popen` with text, as far as used
    here.

    Attributes:
      stdin, stdout, stderr: Ends of its pipes here, or None where it has none.
      seconds: Seconds of the processor that it has used in the end.
    """

    def __init__(self) -> None:
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self.seconds = 0.0
        self.pid = -1
        self.returncode: int | None = None
        self._started, self._ended = threading.Event(), threading.Event()

    def heard(self, news: Mapping[str, Any]) -> None:
        """Takes news from the server."""
        if "pid" in news:
            self.pid = news["pid"]
        else:
            self.seconds = news["seconds"]
            self.returncode = news["status"]
            self._ended.set()
        self._started.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired where it takes longer."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
        assert self.returncode is not None
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

        def read(name: str, stream: IO[str]) -> None:
            texts[name] = stream.read()

        streams = {"out": self.stdout, "err": self.stderr}
        readers = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in streams.items()
            if stream is not None
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return texts.get("out", ""), texts.get("err", "")

    def send_signal(self, number: int) -> None:
        self._started.wait()
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it, and the processes that it has started."""
        self._started.wait()
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.send_signal(signal.SIGKILL)


class Server:
    """The process that forks. Any number of threads may use it.

    Args:
      environment: Environment of the server. JAX and other libraries read some
        variables
        when they are imported: a program that needs others there needs another server.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
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
        self._lock = threading.Lock()
        self._runs: dict[int, Forked] = {}
        self._count = 0
        if not self._orders.recv(1000):
            raise RuntimeError("the server of forked programs has not started")
        threading.Thread(target=self._listen, daemon=True).start()

    def start(
        self,
        argv: Sequence[str],
        cwd: Path,
        streams: Sequence[int],
        env: Mapping[str, str],
    ) -> Forked:
        """Starts `python ARGV`, which begins with -m MODULE or -c TEXT.

        Args:
          streams: Descriptors of its standard input, output and error, which stay
            open here.
          env: Whole environment.
        """
        order = {"argv": list(argv), "cwd": str(cwd), "env": dict(env)}
        with tempfile.TemporaryFile("w+", encoding="utf-8") as file, self._lock:
            json.dump(order, file)
            file.seek(0)
            self._count += 1
            self._runs[self._count] = run = Forked()
            files = [file.fileno(), *streams]
            socket.send_fds(self._orders, [str(self._count).encode()], files)
        return run

    def start_with_pipes(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
    ) -> Forked:
        """Starts as `start` does, with pipes for standard output and error.

        Args:
          stdin: Either subprocess.DEVNULL or subprocess.PIPE.
        """
        out, its_out = os.pipe()
        err, its_err = os.pipe()
        if stdin == subprocess.PIPE:
            its_in, given = os.pipe()
        else:
            its_in, given = os.open(os.devnull, os.O_RDONLY), None
        try:
            run = self.start(argv, cwd, (its_in, its_out, its_err), env)
        finally:
            for file in (its_in, its_out, its_err):
                os.close(file)
        run.stdout = os.fdopen(out, encoding="utf-8", errors="replace")
        run.stderr = os.fdopen(err, encoding="utf-8", errors="replace")
        run.stdin = None if given is None else os.fdopen(given, "w", encoding="utf-8")
        return run

    def _listen(self) -> None:
        while message := self._orders.recv(1000):
            news = json.loads(message)
            self._runs[news["number"]].heard(news)
            if "status" in news:
                del self._runs[news["number"]]
        for run in self._runs.values():  # the server has died
            run.heard({"status": -signal.SIGKILL, "seconds": 0.0})

    def close(self) -> None:
        """Kills the programs that still run, and ends the server."""
        self._orders.shutdown(socket.SHUT_WR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
