"""Breaks a small pre-training at random moments and checks that nothing is lost.

    python -m tests.system.chaos [--faults=25] [--seed=0]

A run is trained undisturbed. Then it is trained under faults and started again after
each. If it ends before the faults do, another round begins in a new folder. Each fault
happens at each of the moments equally often:

    kill, term, int, hup   SIGKILL, SIGTERM, SIGINT, SIGHUP
    full                   a full disk: RLIMIT_FSIZE = 0, so that no file can grow

    start     between the start of Python and the first step
    compile   while the step is compiled
    step      between or in training steps
    save      while a checkpoint is written
    evaluate  while the held-out text is evaluated

The exit status is 1 unless
- a signal ends the run with 143, 130 or 129 (or by itself, before the program has
  started), and a full disk with 2 and one line,
- each start resumes from the newest checkpoint, or from the step reported as
  saved,
- in the end metrics, predictions, parameters and optimizer state are those of the
  undisturbed run, bit for bit.
"""

import argparse
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.gates import made

SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "hup": signal.SIGHUP,
}
MOMENTS = ("start", "compile", "step", "save", "evaluate")
FIELDS = ("train.eval_every=10", "checkpoint.save_every=8", "checkpoint.keep=3")
PATIENCE = 600  # seconds after which a process hangs


class Fault(NamedTuple):
    kind: str
    moment: str


class Lost(Exception):
    """Something that must hold does not."""


class Process:
    """A training process whose standard error is collected.

    Args:
      process: Process, just started. A full disk does not affect its pipe.
      workdir: Work directory of the process.
    """

    def __init__(self, process: subprocess.Popen, workdir: Path):
        self.workdir, self.err = workdir, ""
        self.process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.err += line

    def wait_for(self, condition: Callable[[], object], more: float = 0.0) -> bool:
        """Waits for a condition and `more` seconds. Returns whether it still runs."""
        end = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > end:
                self.process.kill()
                raise Lost(f"hangs:\n{self.err}")
            time.sleep(0.001)
        time.sleep(more)
        return self.process.poll() is None

    def wait_for_moment(self, moment: str, rng: random.Random) -> bool:
        """Waits for the moment of a fault. Returns whether the process still runs."""
        if moment == "start":
            return self.wait_for(lambda: True, rng.uniform(0, 6))
        if not self.wait_for(lambda: "parameters on" in self.err):
            return False
        if moment == "compile":
            return self.wait_for(lambda: True, rng.uniform(0, 2))
        if moment == "evaluate":
            before = self.err.count("evaluating")
            return self.wait_for(
                lambda: self.err.count("evaluating") > before, rng.uniform(0, 0.2)
            )
        if moment == "save":
            folder = self.workdir / "checkpoints"
            before = set(folder.glob("*-tmp"))
            return self.wait_for(
                lambda: set(folder.glob("*-tmp")) - before, rng.uniform(0, 0.1)
            )
        path, more = self.workdir / "metrics.jsonl", rng.randint(1, 12)
        lines = path.read_bytes().count(b"\n")
        return self.wait_for(
            lambda: path.read_bytes().count(b"\n") >= lines + more, rng.uniform(0, 0.02)
        )

    def suffer(self, kind: str) -> None:
        if kind == "full":
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        else:
            self.process.send_signal(SIGNALS[kind])

    def end(self) -> int:
        """Waits for the end and returns the exit status."""
        status = self.process.wait(PATIENCE)
        self._reader.join()
        if "Traceback" in self.err or "damaged" in self.err:
            raise Lost(f"not what a user may see:\n{self.err}")
        return status


def draw(count: int, rng: random.Random) -> list[Fault]:
    """Draws faults, each as often as the others, in any order."""
    every = [Fault(kind, moment) for kind in (*SIGNALS, "full") for moment in MOMENTS]
    faults: list[Fault] = []
    while len(faults) < count:
        faults += rng.sample(every, len(every))
    return faults[:count]


def check_end(fault: Fault, status: int, err: str) -> int:
    """Checks how a fault ended. Returns the step reported as saved, 0 if none.

    Status 0 means that the run had ended before.
    """
    number = SIGNALS.get(fault.kind, 0)
    allowed = {"kill": [-9], "full": [2]}.get(fault.kind, [128 + number])
    if "parameters on" not in err:
        allowed.append(-number)
    if status not in (*allowed, 0):
        raise Lost(f"{fault} ended with {status}:\n{err}")
    errors = [line for line in err.splitlines() if "error:" in line]
    if status == 2 and (len(errors) != 1 or err.splitlines()[-1] != errors[0]):
        raise Lost(f"{fault}: not one line:\n{err}")
    saved = re.findall(r"^saved step (\d+)", err, re.MULTILINE)
    return int(saved[-1]) if saved else 0


def check_resumed(err: str, known: int) -> None:
    """Checks that a start resumed from checkpoint `known` or a later one."""
    resumed = re.search(r"^resuming at step (\d+)", err, re.MULTILINE)
    trained = re.search(r"^step \d+/", err, re.MULTILINE)
    if known and ((trained and not resumed) or (resumed and int(resumed[1]) < known)):
        raise Lost(f"checkpoint {known} was there:\n{err}")


def check_same(workdir: Path, straight: Path) -> None:
    """Checks that two finished runs are the same, bit for bit."""
    for one, other in zip(made.metrics(workdir), made.metrics(straight), strict=False):
        if one != other:
            raise Lost(f"{workdir}: {one} is not {other}")
    if len(made.metrics(workdir)) != len(made.metrics(straight)):
        raise Lost(f"{workdir}: other numbers of metrics")
    if made.predictions(workdir) != made.predictions(straight):
        raise Lost(f"{workdir}: other predictions")
    state, expected = made.saved_state(workdir), made.saved_state(straight)
    if state.keys() != expected.keys():
        raise Lost(f"{workdir}: other arrays: {state.keys() ^ expected.keys()}")
    for name, array in expected.items():
        if state[name].tobytes() != array.tobytes():
            raise Lost(
                f"{workdir}: {name} differs: {np.abs(state[name] - array).max()}"
            )


def real_process(*arguments: str) -> subprocess.Popen:
    """Starts the program as a user does."""
    return subprocess.Popen(
        [sys.executable, "-m", "bert_jax.main", *arguments],
        cwd=made.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    faults: Sequence[Fault],
    steps: int,
    rng: random.Random,
    folder: Path,
    program: Callable[..., subprocess.Popen] = real_process,
) -> list[tuple[Fault, int]]:
    """Trains undisturbed and under faults. Returns the faults with their exit status.

    Args:
      steps: Training steps of the run.
      program: Function that starts bert_jax.main with the given arguments.

    Raises:
      Lost: Something that must hold does not.
    """
    config = made.write_config("pretraining", folder)
    given = [f"--config.{field}" for field in (f"train.num_steps={steps}", *FIELDS)]

    def start(workdir: Path) -> Process:
        data = f"--config.corpus.data_dir={workdir}-data"  # prepared in each round
        arguments = (f"--config={config}", f"--workdir={workdir}", data, *given)
        return Process(program(*arguments), workdir)

    if start(folder / "straight").end():
        raise Lost("the undisturbed run failed")
    ended: list[tuple[Fault, int]] = []
    left, rounds, known = list(faults), 1, 0
    while True:
        process = start(folder / f"round_{rounds}")
        said = 0
        if left and process.wait_for_moment(left[0].moment, rng):
            process.suffer(left[0].kind)
            status = process.end()
            said = check_end(left[0], status, process.err)
            ended.append((left.pop(0), status))
        elif status := process.end():
            raise Lost(f"ended with {status} by itself:\n{process.err}")
        check_resumed(process.err, known)
        known, before = made.newest(process.workdir), known
        if known < max(before, said):
            raise Lost(f"checkpoint {max(before, said)} is gone:\n{process.err}")
        if status == 0:
            check_same(process.workdir, folder / "straight")
            if not left:
                return ended
            rounds, known = rounds + 1, 0


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults")
    options = parser.parse_args(argv)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ended = run(draw(options.faults, rng), 80, rng, Path(folder))
        except Lost as lost:
            print(f"LOST: {lost}")
            return 1
    for fault, status in sorted(ended):
        print(f"{fault.kind:5} {fault.moment:9} {status}")
    print(f"{len(ended)} faults: every run is the undisturbed one, bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
