"""Faults in runs of every task, each compared bit for bit with the undisturbed run."""

import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from tests.forked import Server
from tests.system import chaos
from tests.system.chaos_process import Fault, Lost, Process
from tests.system.inputs import Result
from tests.system.micro_runs import Stages

# Long enough to be met while it steps, and to save and evaluate between the faults.
LENGTHS = {
    "train.num_steps": 60,
    "train.eval_every": 13,
    "checkpoint.save_every": 10,
    "checkpoint.keep": 2,
    "checkpoint.keep_every": 20,
}
FAULTS = 4  # in a run until it is finished


class Runs:
    """The undisturbed runs, each made when it is first needed."""

    def __init__(self, server: Server, stages: Stages, tasks: tuple[str, ...]):
        self._server, self._stages = server, stages
        self.tasks = [task for task in tasks if task != "ax"]
        self._folder = Path(tempfile.mkdtemp(prefix="bert_jax.straight."))
        self._locks = {task: threading.Lock() for task in self.tasks}
        self._lasts: dict[str, dict[str, float]] = {}

    def starter(self, task: str) -> chaos.Start:
        """Starts forked trainings."""
        argv = ["--config=in/micro.py", "--workdir=run"]
        argv += [f"--config.{name}={value}" for name, value in LENGTHS.items()]

        def start(home: Path) -> Process:
            if not home.exists():
                self._stages.copy(task, "inputs", home)
            environment = self._server.environment
            program = ["-m", "bert_jax.main", *argv]
            run = self._server.start_with_pipes(program, home, environment)
            return Process(run, home)

        return start

    def straight(self, task: str) -> tuple[Path, dict[str, float]]:
        """The home of a task's undisturbed run, and how long its parts take."""
        home = self._folder / task
        with self._locks[task]:
            if task not in self._lasts:
                self._lasts[task] = chaos.undisturbed(self.starter(task), home)
        return home, self._lasts[task]

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def one(runs: Runs, number: int, seed: int, folder: Path) -> list[Result]:
    """Some faults in a run, which goes on after each until it is finished."""
    rng = random.Random(f"{seed}:fault:{number}")
    order = random.Random(seed).sample(runs.tasks, len(runs.tasks))
    task = order[number % len(order)]
    home, lasts = runs.straight(task)
    faults = _drawn(number, seed)
    reported: list[str] = []
    try:
        chaos.disturbed(
            *(runs.starter(task), faults, lasts, rng, folder, home), reported.append
        )
        lost = ""
    except Lost as error:
        lost = str(error)
    results = []
    for line in reported:
        kind, moment, status = line.replace(":", "").replace(",", "").split()[1:4]
        text = f"{task}: {moment}, status {status}"
        results.append(Result(f"f{number}", f"{kind} {moment}", text, "survived", ()))
    if lost:
        text = f"{task}: {', '.join(' '.join(fault) for fault in faults)}"
        results.append(Result(f"f{number}", "lost", text, "failed", (lost,)))
    return results


def _drawn(number: int, seed: int) -> list[Fault]:
    """Of all faults as many as of the others, over all numbers."""
    every = chaos.draw(FAULTS * (number + 1), random.Random(f"{seed}:faults"))
    return every[FAULTS * number :]


def trial(runs: Runs, seed: int) -> Callable[[int], list[Result]]:
    """A function that tries the faults of a number, and leaves nothing behind."""

    def attempt(number: int) -> list[Result]:
        folder = Path(tempfile.mkdtemp(prefix="bert_jax.fault."))
        try:
            return one(runs, number, seed, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return attempt
