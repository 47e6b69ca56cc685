"""How long a run takes from the command to its first step, and with what.

    python -m experiments.speed.start_up [--rounds=3] [--output=FILE.json] \
        [-- --config=configs/tiny.py --config.FIELD=VALUE ...]

What follows `--` goes to bert_jax.main (default: configs/tiny.py, which every machine
has the text for). The data is prepared before. Each start is a new process with a new
work directory; `cold` has an empty compilation cache, `warm` that of the cold one
before it, `off` none; they take turns. The time of a part ends where its line says;
`step 1` is complete when its loss has been fetched. The floor is a process that does
no more than import JAX and find its devices.
"""

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.runtime.terminal import table
from experiments.speed import measuring

MODULE = "experiments.speed.start_up"
CONFIG = "--config=configs/tiny.py"
SIDES = ("cold", "warm", "off")
# The parts, in their order, by what they end with.
PARTS = {
    "Python": "the interpreter runs",
    "imports": "the modes are imported, JAX too",
    "devices": "JAX has found them",
    "task": "the config is resolved",
    "session": "data, mesh, folder and checkpoints are checked",
    "state": "parameters and optimizer state are there",
    "batch": "the first batch is on the devices",
    "compile": "the step is compiled or read",
    "step 1": "its loss is here",
}
FLOOR = "import jax; jax.devices()"


def traced(arguments: list[str]) -> dict[str, float]:
    """Runs bert_jax.main here; when each part of its start ended, by time.monotonic."""
    ends = {"Python": time.monotonic()}
    from bert_jax import main, train  # noqa: F401  (timed)
    from bert_jax.runtime import environment
    from bert_jax.training import compilation, run_setup, session, setup

    def mark(owner: Any, name: str, part: str) -> None:
        function: Callable = getattr(owner, name)

        @functools.wraps(function)
        def marked(*given: Any, **named: Any) -> Any:
            result = function(*given, **named)
            ends.setdefault(part, time.monotonic())
            return result

        setattr(owner, name, marked)

    ends["imports"] = time.monotonic()
    mark(environment, "require_devices", "devices")
    mark(setup, "build_task", "task")
    mark(run_setup, "build", "session")
    mark(session.Session, "__enter__", "state")
    mark(session.Session, "next_batch", "batch")
    mark(compilation.CompiledStep, "for_batch", "compile")
    mark(session.Session, "write_metrics", "step 1")
    status = main.main(arguments)
    if status:
        sys.exit(status)
    return ends


def run(arguments: list[str], cache: Path, *, on: bool) -> dict[str, float]:
    """One start in a process of its own; the seconds of each part."""
    variables = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_ENABLE_COMPILATION_CACHE": str(on).lower(),
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *("-m", MODULE, "--traced", "--", *arguments),
            *(f"--workdir={folder}/run", "--config.train.log_every=1"),
        ]
        start = time.monotonic()
        ends = json.loads(measuring.program(command, variables).splitlines()[-1])
    return parts(start, ends)


def parts(start: float, ends: dict[str, float]) -> dict[str, float]:
    """Seconds of each part from when each ended; `all` is their sum.

    Raises:
      ValueError: a part is missing, or they ended in another order.
    """
    if list(ends) != list(PARTS):
        raise ValueError(f"the start had the parts {list(ends)}, not {list(PARTS)}")
    found, before = {}, start
    for name, end in ends.items():
        found[name] = end - before
        before = end
    return {**found, "all": before - start}


def floor() -> float:
    """Seconds of a process that imports JAX and finds its devices."""
    start = time.monotonic()
    measuring.program(["-c", FLOOR])
    return time.monotonic() - start


def prepare(arguments: list[str]) -> None:
    """Prepares the data, so that no start has to."""
    command = ["-m", "bert_jax.main", "--mode=prepare", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        measuring.program([*command, f"--workdir={folder}/run"])


def measure(arguments: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """The starts of each side, in turns."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for side, starts in found.items():
                starts.append(run(arguments, Path(cache), on=side != "off"))
    return found


def main(arguments: list[str]) -> None:
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    given = arguments[cut + 1 :] or [CONFIG]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", default="", help="JSON")
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments[:cut])
    if options.traced:
        print(json.dumps(traced(given)))
        return
    facts = measuring.begin(MODULE, arguments)
    with tempfile.TemporaryDirectory() as data:
        fields = [*given, "--config.train.num_steps=1", "--config.train.eval_every=0"]
        if not any("data_dir" in field for field in given):
            fields.append(f"--config.corpus.data_dir={data}")
        prepare(fields)
        floors = [floor() for _ in range(options.rounds)]
        found = measure(fields, options.rounds)
    measuring.write(options.output, {**facts, "floor": floors, "starts": found})
    rows = [
        (
            name,
            *(
                f"{statistics.median(start[name] for start in found[side]):.2f}"
                for side in SIDES
            ),
            PARTS.get(name, "from the command on"),
        )
        for name in (*PARTS, "all")
    ]
    print(f"\nseconds, median of {options.rounds}")
    print(table(rows, ("", *SIDES, "ends when")))
    print(f"floor ({FLOOR}): {statistics.median(floors):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
