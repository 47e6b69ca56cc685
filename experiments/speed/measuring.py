"""What the benchmarks share: processes, turns, the machine's peaks, and their file."""

import functools
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime.environment import MALLOC
from experiments.lib import kept, report

ROOT = Path(__file__).resolve().parents[2]


def use_threads(count: int) -> None:
    """Restricts this process to `count` cores; 0: all. Call it before JAX starts.

    Raises:
      SystemExit: the system cannot do so, or has fewer cores.
    """
    if not count:
        return
    if not hasattr(os, "sched_setaffinity") or count > report.cores():
        sys.exit(
            f"error: --threads={count}: not possible on these {report.cores()} core(s)"
        )
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def begin(
    module: str, arguments: Sequence[str], packages: Sequence[str] = report.PACKAGES
) -> dict[str, Any]:
    """Sets the environment of the processes that this one starts as launch.sh does, and
    prints and returns the `facts`."""
    if sys.platform == "linux":
        os.environ.setdefault("GLIBC_TUNABLES", MALLOC)
    found = report.facts(module, arguments, packages)
    print(report.introduction(found), flush=True)
    return found


def write(path: str, content: Mapping[str, Any]) -> None:
    """Writes a JSON file, whole or not at all; an empty path writes nothing."""
    if path:
        kept.write(Path(path), content)


def in_process(
    module: str,
    case: Mapping[str, Any],
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Calls the module's `measure` with the case in a process of its own.

    Args:
      limit: seconds after which it is killed.
      environment: more variables.

    Returns:
      The case and what `measure` returned; or `error`, why not.
    """
    child = f"from {__name__} import main; main()"
    command = [sys.executable, "-c", child, module, json.dumps(case)]
    start = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            # With the processes that it has started: they hold its output open.
            os.killpg(process.pid, signal.SIGKILL)
            return {**case, "error": f"killed after {limit:.0f} s"}
    seconds = round(time.monotonic() - start, 1)
    if process.returncode:
        lines = err.strip().splitlines() or [f"status {process.returncode}"]
        return {**case, "error": lines[-1][:500], "seconds": seconds}
    return {**case, **json.loads(out.splitlines()[-1]), "seconds": seconds}


def main() -> None:
    """What that process does: prints what the module measures, after all else."""
    module, case = sys.argv[1:]
    try:
        found = importlib.import_module(module).measure(json.loads(case))
    except UserError as error:
        sys.exit(str(error))
    print(json.dumps(found))


def alternate(
    sides: Mapping[str, Callable[[int], float]], rounds: int, least: float
) -> dict[str, dict[str, Any]]:
    """Measures the sides in turns, so that a slow moment of the machine meets all.

    A turn begins with a step that does not count: after a wait it may spend as long in
    the system, fetching the memory that the side has freed, as in computing.

    Args:
      sides: each a function that takes so many steps, waits for their end and returns
        the processor time used in seconds (see `timed`, `sides.Process`); warm.
      rounds: turns of each side; every second round goes through them backwards.
      least: seconds that a turn should take.

    Returns:
      For each side, seconds of a step: `median` and `best` over the rounds, `turns`;
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


def timed(step: Callable[[int], object]) -> Callable[[int], float]:
    """A side of this process: `step`, returning the processor time of all threads."""

    def take(steps: int) -> float:
        used = time.process_time()
        step(steps)
        return time.process_time() - used

    return take


def ratio(of: Mapping[str, Any], to: Mapping[str, Any]) -> dict[str, float]:
    """How many times as fast `to` is as `of`: round by round, and of the best turns."""
    rounds = [a / b for a, b in zip(of["turns"], to["turns"], strict=True)]
    return {"median": statistics.median(rounds), "best": of["best"] / to["best"]}


def best_rate(work: float, function: Callable[[], object], seconds: float) -> float:
    """`work` / the shortest of the calls that fit into `seconds` (at least three)."""
    function()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return work / min(times)


def peaks(library: str, size: int, megabytes: int, seconds: float) -> dict[str, float]:
    """What the device reaches by "jax" or "torch": FLOP/s of a square matrix product of
    `size` in float32 and bfloat16, and bytes/s read and written by a copy of
    `megabytes`."""
    work = _jax_work if library == "jax" else _torch_work
    amounts = dict.fromkeys(("float32", "bfloat16"), 2.0 * size**3)
    amounts["copy"] = 2e6 * megabytes
    return {
        name: best_rate(amount, work(name, size, megabytes), seconds)
        for name, amount in amounts.items()
    }


def _jax_work(name: str, size: int, megabytes: int) -> Callable[[], object]:
    """A product of this dtype, or a "copy"."""
    import jax
    import jax.numpy as jnp

    if name == "copy":
        source = jnp.ones(megabytes * 250_000, jnp.float32)
        # A sum with an argument: XLA would drop a plain copy.
        add = jax.jit(jnp.add)
        return lambda: add(source, 1.0).block_until_ready()
    x = jax.random.normal(jax.random.key(0), (size, size)).astype(name)
    product = jax.jit(jnp.matmul)
    return lambda: product(x, x).block_until_ready()


def _torch_work(name: str, size: int, megabytes: int) -> Callable[[], object]:
    """As `_jax_work`, by torch."""
    import torch

    from experiments.lib import torch_side

    device = torch_side.device()
    act: Callable[[], object]
    if name == "copy":
        x = torch.ones(megabytes * 250_000, device=device)
        act = functools.partial(torch.empty_like(x).copy_, x)
    else:
        x = torch.randn(size, size, device=device).to(getattr(torch, name))
        act = functools.partial(torch.mm, x, x, out=torch.empty_like(x))

    def work() -> None:
        act()
        torch_side.synchronize()

    return work


def higher(*peaks: Mapping[str, float]) -> dict[str, float]:
    """The machine's peaks: of each, the highest that a library reached."""
    return {name: max(one[name] for one in peaks) for name in peaks[0]}
