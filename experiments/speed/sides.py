"""Sides of a benchmark that live in processes of their own.

Two libraries in one process disturb each other: both keep a pool of threads for each
core, and share the allocator. So each has a process, and the processes take turns; one
that waits for its turn sleeps. On a GPU, too, they are side by side, so that JAX's
processes leave memory to the others.
"""

import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from experiments.speed.measuring import ROOT

# JAX takes most of a GPU's memory otherwise; there are up to two processes of it.
SHARED = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}
PEAKS = "peaks"  # a side that measures the machine instead of working


class Process:
    """Python with one library, which takes its turns when it is asked to.

    Attributes:
      found: what it said of itself when it was ready.
      sides: the names that it answers to.

    Args:
      wait: until it is ready; else call `ready`.
      root: the checkout whose code it runs; None means this one.

    Raises:
      RuntimeError: it ended; with the last line of its errors.
    """

    def __init__(
        self,
        module: str,
        case: Mapping[str, Any],
        *,
        wait: bool = True,
        root: Path | None = None,
    ):
        # Not a pipe: nobody reads it before the end, and it would fill.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        child = f"from {__name__} import answer; answer()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", child, module, json.dumps(case)],
            cwd=root or ROOT,
            env={**SHARED, **os.environ, **_importing(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        if wait:
            self.ready()

    def ready(self) -> None:
        """Waits until it has opened its sides."""
        try:
            self.found = self._read()
            self.sides: list[str] = self.found.pop("sides")
        except BaseException:
            self.__exit__()
            raise

    def kill(self) -> None:
        """Ends it at once; who waits for it is told."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, name: str, times: int = 1) -> dict[str, Any]:
        """Has a side work so many times: its `value`, and the `cpu` seconds it took."""
        assert self._process.stdin
        # Where it has ended, the missing answer says why.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([name, times]), file=self._process.stdin, flush=True)
        return self._read()

    def turns(self) -> dict[str, Callable[[int], float]]:
        """The sides that work, as `measuring.alternate` takes them."""
        names = [name for name in self.sides if name != PEAKS]
        return {name: functools.partial(self._turn, name) for name in names}

    def _turn(self, name: str, times: int) -> float:
        return float(self.ask(name, times)["cpu"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"status {status}")


def _importing(root: Path | None) -> dict[str, str]:
    """Variables with which Python finds a checkout's packages first."""
    if root is None:
        return {}
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(root), others)))}


def answer() -> None:
    """What the process does: opens its sides, then works as it is asked to.

    The module's `open_sides` takes the case; it returns the sides by name, each a
    function that works so many times, waits for the end and returns what JSON can hold;
    and a dict about them.
    """
    module, case = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer

    def say(content: Mapping[str, Any]) -> None:
        print(json.dumps(content), file=out, flush=True)

    sides, found = importlib.import_module(module).open_sides(json.loads(case))
    say({"sides": list(sides), **found})
    for line in sys.stdin:
        name, times = json.loads(line)
        used = time.process_time()
        value = sides[name](times)
        say({"value": value, "cpu": time.process_time() - used})
