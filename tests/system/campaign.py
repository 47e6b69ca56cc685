"""Malformed inputs, faults and signals, of every task; nothing may break.

    python -m tests.system.campaign [--minutes=30] [--seed=0] [--workers=2]
    python -m tests.system.campaign --only=i17 --seed=0 [--folder=DIR]

Two fifths of the time go to inputs: config fields with values of every type, files of
every kind spoiled by rule, command lines, outputs, config programs. Each is wrong, or
unusual, and must end well, or with status 2 and one line. Then faults: SIGKILL,
SIGTERM, SIGINT, SIGHUP and a full disk in runs of every task, each gone on with until
it is finished and compared bit for bit with the undisturbed run. Then signals to
programs that start.

Prints a table of causes, and for each failure the command that makes it again: an
input (i17), the faults in a run (f3) or a signal (s5), in a folder that is kept. The
exit status is 1 where anything has failed.

Inputs and faults are runs forked from a process that has imported JAX
(tests/fork_server.py); the signals go to real processes.
"""

import argparse
import contextlib
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bert_jax.runtime.terminal import table
from tests.forked import Server, surroundings
from tests.system import faults, inputs, start_signals
from tests.system.inputs import Result
from tests.micro_data import KINDS
from tests.system.micro_runs import Stages

PARTS = {"inputs": 0.4, "faults": 0.3, "signals": 0.3}
EVERY = dict.fromkeys(PARTS, sys.maxsize)
TITLES = {
    "inputs": "malformed inputs by rule",
    "faults": "faults by kind and moment",
    "signals": "signals to programs that start",
}


@contextlib.contextmanager
def _server() -> Iterator[Server]:
    """A server whose runs share what is compiled."""
    with (
        tempfile.TemporaryDirectory(prefix="bert_jax.campaign.") as cache,
        Server(surroundings(Path(cache))) as server,
    ):
        yield server


def run(
    seconds: float,
    seed: int,
    workers: int = 2,
    tasks: tuple[str, ...] = tuple(KINDS),
    most: Mapping[str, int] = EVERY,
) -> dict[str, list[Result]]:
    """All three parts, in so many seconds or a little more; gives what has come of
    each trial.

    Args:
      workers: side by side.
      tasks: of these kinds of data.
      most: how many of each part, where there is time for more.
    """
    start_signals.hear()
    with _server() as server:
        stages = Stages(server)
        runs = faults.Runs(server, stages, tasks)
        trials = {
            "inputs": inputs.trial(server, stages, tasks, seed),
            "faults": faults.trial(runs, seed),
            "signals": start_signals.trial(server, stages, tasks, seed),
        }
        try:
            results, end = {}, time.monotonic()
            for part, trial in trials.items():
                end += seconds * PARTS[part]
                results[part] = inputs.until(end, workers, trial, most[part])
        finally:
            runs.close()
            stages.close()
    return results


def report(results: dict[str, list[Result]], seed: int) -> str:
    """Tables of causes; and each failure, with the command that makes it again."""
    blocks = []
    for part, found in results.items():
        columns = sorted({result.ended for result in found})
        counts = Counter((result.cause, result.ended) for result in found)
        rows = [
            (cause, sum(line), *line)
            for cause in sorted({result.cause for result in found})
            for line in [[counts[cause, column] for column in columns]]
        ]
        total = [sum(row[i] for row in rows) for i in range(1, len(columns) + 2)]
        rows.append(("all", *total))
        shown = table([tuple(map(str, row)) for row in rows], ("", "tried", *columns))
        blocks.append(f"{TITLES[part]}\n\n{shown}")
    failed = [r for found in results.values() for r in found if r.faults]
    for result in failed:
        blocks.append(
            f"{result.cause}: {result.description}\n  {'; '.join(result.faults)}\n  "
            f"python -m tests.system.campaign --only={result.name} --seed={seed}"
        )
    blocks.append(f"{len(failed)} failed")
    return "\n\n".join(blocks)


def again(name: str, seed: int, folder: Path) -> Result | None:
    """Tries one input, the faults of one run, or one signal, and keeps its folder."""
    start_signals.hear()
    number, tasks = int(name[1:]), tuple(KINDS)
    with _server() as server:
        stages = Stages(server)
        runs = faults.Runs(server, stages, tasks)
        try:
            if name[0] == "s":
                results = [
                    start_signals.one(server, stages, tasks, number, seed, folder)
                ]
            elif name[0] == "f":
                results = faults.one(runs, number, seed, folder)
            else:
                result, case = inputs.one(server, stages, tasks, number, seed, folder)
                results = [result]
                program = ["python", "-m", "bert_jax.main", *case.argv]
                print(f"cd {case.folder} && {shlex.join(program)} < {case.stdin}")
                print((folder / "stderr").read_text(errors="replace"))
        finally:
            runs.close()
            stages.close()
    for result in results:
        print(f"{result.cause}: {result.description}: {result.ended}")
        for fault in result.faults:
            print(f"  {fault}")
    return next((result for result in results if result.faults), None)


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="side by side")
    parser.add_argument("--only", help="as i17: this input, run of faults or signal")
    parser.add_argument("--folder", type=Path, help="a new one, for --only")
    options = parser.parse_args(argv)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if options.only:
        folder = options.folder or Path(tempfile.mkdtemp(prefix="bert_jax.only."))
        folder.mkdir(parents=True, exist_ok=True)
        print(f"in {folder}")
        return 1 if again(options.only, options.seed, folder.absolute()) else 0
    print(
        f"$ {shlex.join(['python', '-m', 'tests.system.campaign', *argv])}", flush=True
    )
    start = time.monotonic()
    results = run(60 * options.minutes, options.seed, options.workers)
    print(f"\n{report(results, options.seed)} in {time.monotonic() - start:.0f} s")
    return 1 if any(r.faults for found in results.values() for r in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
