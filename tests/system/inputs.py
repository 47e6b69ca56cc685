"""Malformed inputs, one after the other: made, tried, judged."""

import contextlib
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.forked import Overdue, Server, wait
from tests.system import cases_commands, cases_fields, cases_files, cases_outputs, judge
from tests.system.cases import Case, Draw, Rule
from tests.system.micro_runs import MEMORY, Stages

RULES: dict[Rule, int] = {
    **cases_fields.RULES,
    **cases_files.RULES,
    **cases_commands.RULES,
    **cases_outputs.RULES,
}
SECONDS = 180.0  # a run takes some two; one that takes so long waits for something


@dataclass(frozen=True)
class Result:
    """How an input, a fault or a signal ended.

    Attributes:
      name: of `--only`.
      cause: the row of the table.
      ended: refused, accepted, ...: the column.
      faults: what is wrong with it; empty where nothing is.
    """

    name: str
    cause: str
    description: str
    ended: str
    faults: tuple[str, ...]


def make(
    number: int, seed: int, tasks: tuple[str, ...], stages: Stages, folder: Path
) -> Case:
    """The input of a number, always the same under a seed, in a new folder."""
    every = [rule for rule, weight in RULES.items() for _ in range(weight)]
    random.Random(seed).shuffle(every)
    place = number % len(every)
    rule = every[place]
    before = every[:place].count(rule) + number // len(every) * every.count(rule)
    name = rule.__name__
    rng, order = random.Random(f"{seed}:{number}"), random.Random(f"{seed}:{name}")
    return rule(Draw(stages, tasks, folder, rng, before, order))


def attempt(server: Server, case: Case) -> tuple[str, list[str]]:
    """Runs an input; gives how it ended, and what is wrong with that."""
    out, err = (case.folder.parent / name for name in ("stdout", "stderr"))
    for path in (out, err):
        path.write_text("")
    before = judge.picture(case.folder)
    with _read(case) if case.is_stream else contextlib.nullcontext():
        streams = (case.stdin, str(out), str(err))
        program = ["-m", "bert_jax.main", *case.argv]
        run = server.start_on_files(program, case.folder, streams, **case.env)
        try:
            status = wait(run, SECONDS, MEMORY)
        except Overdue as overdue:
            return "failed", [str(overdue)]
    said, printed = (p.read_text(errors="replace") for p in (err, out))
    found = judge.faults(case, before, status, printed, said)
    return {0: "accepted", 2: "refused"}.get(status, "failed"), found


@contextlib.contextmanager
def _read(case: Case):
    """Somebody reads from the pipe that the output is."""
    pipe, target = case.folder / case.output, case.folder.parent / "read"

    def read() -> None:
        with pipe.open("rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # nobody has written
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        reader.join(10)


def one(
    server: Server,
    stages: Stages,
    tasks: tuple[str, ...],
    number: int,
    seed: int,
    base: Path,
) -> tuple[Result, Case]:
    """Makes and tries an input in the folder `base`, which stays."""
    case = make(number, seed, tasks, stages, base / "case")
    ended, found = attempt(server, case)
    description = f"{case.task} {case.stage} {case.mode}: {case.description}"
    ended = "failed" if found else ended
    return Result(f"i{number}", case.rule, description, ended, tuple(found)), case


def trial(
    server: Server, stages: Stages, tasks: tuple[str, ...], seed: int
) -> Callable[[int], list[Result]]:
    """A function that tries the input of a number, and leaves nothing behind."""

    def attempt_one(number: int) -> list[Result]:
        base = Path(tempfile.mkdtemp(prefix="bert_jax.input."))
        try:
            return [one(server, stages, tasks, number, seed, base)[0]]
        finally:
            shutil.rmtree(base, ignore_errors=True)

    return attempt_one


def until(
    end: float, workers: int, work: Callable[[int], list[Result]], most: int
) -> list[Result]:
    """Does work(0), work(1), ... side by side until it is `end` (time.monotonic), or
    `most` are done."""
    results: list[Result] = []
    errors: list[BaseException] = []
    lock, numbers = threading.Lock(), iter(range(most))

    def run() -> None:
        while time.monotonic() < end and not errors:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                found = work(number)
            except BaseException as error:
                errors.append(error)
                return
            with lock:
                results.extend(found)
            for result in found:
                for fault in result.faults:
                    what = f"{result.cause}: {result.description}: {fault}"
                    line = f"FAILED {result.name} {what}"
                    print(line.encode(errors="replace").decode(), flush=True)

    threads = [threading.Thread(target=run) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
