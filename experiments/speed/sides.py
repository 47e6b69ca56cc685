"""Sides of a benchmark: each in a process of its library, which take turns.

Two libraries in one process disturb each other: both keep a pool of threads for each
core, and share the allocator. One that waits for its turn sleeps. On a GPU, too, they
are side by side, so that JAX's processes leave memory to the others.
"""

import contextlib
import functools
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bert_jax.commands import report
from bert_jax.errors import UserError
from bert_jax.runtime.environment import MALLOC

ROOT = Path(__file__).resolve().parents[2]
# JAX takes most of a GPU's memory otherwise, and up to two processes use it.
SHARED = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}


def print_facts(
    module: str, arguments: Sequence[str], packages: Sequence[str] = report.PACKAGES
) -> dict[str, Any]:
    """Sets the environment of the processes that this one starts as launch.sh does, and
    prints and returns the `facts`."""
    if sys.platform == "linux":
        os.environ.setdefault("GLIBC_TUNABLES", MALLOC)
    found = report.facts(module, arguments, packages)
    print(report.introduction(found), flush=True)
    return found


class Process:
    """Python with one library, which takes its turns on request.

    Args:
      module: Module whose `prepare_sides` takes the case. It returns the sides by
        name, each a function that works the given number of times, waits for the end
        and returns a value that JSON can hold, and a dict about them.
      limit: Seconds in which it must be ready.
      variables: Additions to its environment.

    Attributes:
      found: Description of itself that it sent when it was ready.
      sides: Names of its sides.
    """

    def __init__(
        self,
        module: str,
        case: Mapping[str, Any],
        limit: float = 3600.0,
        variables: Mapping[str, str] | None = None,
    ):
        # Not a pipe: nobody reads it before the end, and it would fill.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._limit, self._why = limit, ""
        child = f"from {__name__} import serve_turns; serve_turns()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", child, module, json.dumps(case)],
            cwd=ROOT,
            env={**SHARED, **os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        """Waits until it has prepared its sides.

        Raises:
          RuntimeError: It ended, with the last line of its errors, or was too slow.
        """
        timer = threading.Timer(self._limit, self._stop)
        timer.start()
        try:
            self.found = self._read()
        except BaseException:
            self.__exit__()
            raise
        finally:
            timer.cancel()
        self.sides: list[str] = self.found.pop("sides")
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._process.communicate()
        self._errors.close()

    def _stop(self) -> None:
        self._why = f"killed after {self._limit:.0f} s"
        self._kill()

    def _kill(self) -> None:
        # With the processes that it has started: they hold its output open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def ask(self, name: str, times: int = 1) -> dict[str, Any]:
        """Makes a side work `times` times.

        Returns its `value` and the `cpu` seconds.
        """
        assert self._process.stdin
        # Where it has ended, the missing answer shows why.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([name, times]), file=self._process.stdin, flush=True)
        return self._read()

    def turns(self) -> dict[str, Callable[[int], float]]:
        """Returns the sides, as `time_in_turns` takes them."""

        def turn(name: str, times: int) -> float:
            return float(self.ask(name, times)["cpu"])

        return {name: functools.partial(turn, name) for name in self.sides}

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        raise RuntimeError(self._why or (lines[-1] if lines else f"status {status}"))


def serve_turns() -> None:
    """Prepares the process's sides, then works on request."""
    module, case = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's output is not an answer

    def say(content: Mapping[str, Any]) -> None:
        print(json.dumps(content), file=out, flush=True)

    try:
        sides, found = importlib.import_module(module).prepare_sides(json.loads(case))
    except UserError as error:
        sys.exit(str(error))
    say({"sides": list(sides), **found})
    for line in sys.stdin:
        name, times = json.loads(line)
        used = time.process_time()
        value = sides[name](times)
        say({"value": value, "cpu": time.process_time() - used})


def time_in_turns(
    sides: Mapping[str, Callable[[int], float]], rounds: int, least: float
) -> dict[str, dict[str, Any]]:
    """Measures the sides in turns, so that a slow moment of the machine meets all.

    A turn begins with a step that does not count: after a wait it may spend as long in
    the system, fetching the memory that the side has freed, as in computing.

    Args:
      sides: Functions that take a number of steps, wait for their end and return the
        processor time used in seconds. They must be warm.
      rounds: Number of turns of each side. Every second round goes through them
        backwards.
      least: Minimum number of seconds of a turn.

    Returns:
      For each side, seconds of a step (`median` and `best` over the rounds), `turns`,
      and `cpu`, the best processor time of all threads.
    """
    counts = {}
    for name, step in sides.items():
        start = time.perf_counter()
        step(1)
        counts[name] = max(1, round(least / (time.perf_counter() - start)))
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            sides[name](1)
            start = time.perf_counter()
            used = sides[name](counts[name])
            wall[name].append((time.perf_counter() - start) / counts[name])
            cpu[name].append(used / counts[name])
    return {
        name: {
            "median": statistics.median(wall[name]),
            "best": min(wall[name]),
            "cpu": min(cpu[name]),
            "turns": wall[name],
        }
        for name in sides
    }


def times_as_fast(side: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Returns how many times as fast a side is: the median, round by round."""
    rounds = zip(other["turns"], side["turns"], strict=True)
    return statistics.median(slow / fast for slow, fast in rounds)
