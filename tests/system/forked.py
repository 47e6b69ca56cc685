"""Runs that are forked from one server, each as cheap as its own work."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Small programs: compiling them well would take longer than running them.
FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_force_host_platform_device_count=1"
)


def catches(process: int) -> bool | None:
    """Whether the process has asked for SIGTERM; None where it is gone."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return None
    masks = [line.split()[1] for line in text.splitlines() if line.startswith("SigCgt")]
    return bool(int(masks[0], 16) >> (signal.SIGTERM - 1) & 1) if masks else None


def surroundings(cache: Path) -> dict[str, str]:
    """The environment of a run: one simulated device, compiled programs kept."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "BERT_JAX_", "TFDS_"))
    }
    return kept | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": FLAGS,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "OPENBLAS_NUM_THREADS": "1",  # else NumPy has threads before the fork
    }


class Forked:
    """A run; as `subprocess.Popen`, but for what it is not asked here.

    Attributes:
      seconds: of the processor, that it has used in the end.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pid = -1
        self.returncode: int | None = None
        self._begun, self._ended = threading.Event(), threading.Event()

    def heard(self, news: dict[str, Any]) -> None:
        """For the server."""
        if "pid" in news:
            self.pid = news["pid"]
            self._begun.set()
        else:
            self.seconds = news["seconds"]
            self.returncode = news["status"]
            self._begun.set()
            self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired where it takes longer."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a forked run", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        self._begun.wait()
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """It, and the processes that it has started."""
        self._begun.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.send_signal(signal.SIGKILL)

    def memory(self) -> int:
        """Bytes that it holds in memory; 0 once it has ended."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Server:
    """The process that forks; to be used by any number of threads.

    Attributes:
      environment: that of its runs.
    """

    def __init__(self) -> None:
        self._cache = Path(tempfile.mkdtemp(prefix="bert_jax.campaign."))
        self.environment = surroundings(self._cache)
        theirs, self._orders = os.pipe()
        news, ours = os.pipe()
        self._news = os.fdopen(news, encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.server", str(theirs), str(ours)],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs, ours),
        )
        os.close(theirs)
        os.close(ours)
        self._lock = threading.Lock()
        self._runs: dict[int, Forked] = {}
        self._count = 0
        if not self._news.readline():
            raise RuntimeError("the server of forked runs has not started")
        threading.Thread(target=self._listen, daemon=True).start()

    def start(
        self,
        argv: list[str],
        cwd: Path,
        streams: tuple[str, str, str],
        env: dict[str, str] | None = None,
    ) -> Forked:
        """Starts `python -m bert_jax.main ARGV`.

        Args:
          streams: the files, or pipes, of its standard input, output and error.
          env: what its environment has besides.
        """
        order: dict[str, Any] = {"argv": argv, "cwd": str(cwd), "streams": streams}
        with self._lock:
            self._count += 1
            self._runs[self._count] = run = Forked()
            order |= {"env": env or {}, "number": self._count}
            text = json.dumps(order).encode() + b"\n"
            while text:
                text = text[os.write(self._orders, text) :]
        return run

    def _listen(self) -> None:
        for line in self._news:
            news = json.loads(line)
            self._runs[news["number"]].heard(news)
            if "status" in news:
                del self._runs[news["number"]]

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for run in list(self._runs.values()):
            run.kill()
        os.close(self._orders)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._cache, ignore_errors=True)


class Overdue(Exception):
    """A run took too long, or too much memory."""


def wait(run: Forked, seconds: float, memory: int) -> int:
    """The exit status.

    Raises:
      Overdue: in its words, what there was too much of.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return run.wait(0.1)
        except subprocess.TimeoutExpired:
            held = run.memory()
            if time.monotonic() <= end and held <= memory:
                continue
        run.kill()
        run.wait()
        raise Overdue(
            f"holds {held >> 20} MB" if held > memory else f"hangs ({seconds:.0f} s)"
        )
