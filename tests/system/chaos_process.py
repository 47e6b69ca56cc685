"""One training under a fault, and what must hold of it; see chaos.py."""

import json
import random
import re
import resource
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from tests.forked import Forked, catches

PATIENCE = 300  # seconds; a process that takes longer hangs
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "hup": signal.SIGHUP,
}


class Fault(NamedTuple):
    kind: str
    moment: str


class Lost(Exception):
    """Something that must hold does not."""


class Process:
    """A training in a process of its own, and what it says.

    Args:
      process: it has just been started. Its standard error is a pipe, which a full
        disk does not affect.
      home: its work directory is `run` in there.
    """

    def __init__(self, process: subprocess.Popen | Forked, home: Path):
        self.folder = home / "run"
        self.err = ""
        self.caught = False  # by the program, the signal that it was sent
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.err += line

    def wait_for(self, happened: Callable[[], bool]) -> bool:
        """Waits; False where the process ended first."""
        end = time.monotonic() + PATIENCE
        while not happened():
            if self._process.poll() is not None:
                return False
            if time.monotonic() > end:
                self._process.kill()
                raise Lost(f"hangs:\n{self.err}")
            time.sleep(0.001)
        return True

    def waits(self, seconds: float) -> bool:
        """Waits so long; False where the process ended first."""
        end = time.monotonic() + seconds
        return self.wait_for(lambda: time.monotonic() >= end)

    def says(self, text: str) -> bool:
        """Waits until the process has said so; False where it ended first."""
        return self.wait_for(lambda: text in self.err)

    def suffer(self, kind: str) -> None:
        if kind == "full":
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (0, 0))
        else:
            # Python drops its handlers at the very end: then the system ends it.
            self.caught = bool(catches(self._process.pid))
            self._process.send_signal(SIGNALS[kind])

    def end(self) -> int:
        """Waits for the end; the exit status."""
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise Lost(f"hangs:\n{self.err}") from None
        self._reader.join()
        if "Traceback" in self.err or "damaged" in self.err:
            raise Lost(f"not what a user may see:\n{self.err}")
        return status


def await_moment(
    process: Process, moment: str, lasts: dict[str, float], rng: random.Random
) -> bool:
    """Waits for the moment of a fault; False where the process ended before."""
    if moment == "start":
        return process.waits(rng.uniform(0, lasts["start"]))
    if not process.says("parameters on"):
        return False
    if moment == "compile":
        return process.waits(rng.uniform(0, lasts["compile"]))
    if moment == "evaluate":
        before = process.err.count("evaluating")
        return process.wait_for(
            lambda: process.err.count("evaluating") > before
        ) and process.waits(rng.uniform(0, 0.2))
    if moment == "save":
        folder = process.folder / "checkpoints"
        seen = set(folder.glob("*-tmp"))
        return process.wait_for(
            lambda: bool(set(folder.glob("*-tmp")) - seen)
        ) and process.waits(rng.uniform(0, 0.1))
    path, more = process.folder / "metrics.jsonl", rng.randint(1, 12)
    before = path.read_bytes().count(b"\n")
    return process.wait_for(
        lambda: path.read_bytes().count(b"\n") >= before + more
    ) and process.waits(rng.uniform(0, 0.02))


def newest(folder: Path) -> int:
    """The newest finished checkpoint's step; -1 if there is none."""
    names = [path.name for path in (folder / "checkpoints").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def check_end(process: Process, fault: Fault, status: int) -> int:
    """Whether the process ended as it must; gives the step that it said was saved."""
    number = SIGNALS.get(fault.kind, 0)
    allowed = {"kill": [-signal.SIGKILL], "full": [2]}
    if status not in (*allowed.get(fault.kind, [128 + number, -number]), 0):
        raise Lost(f"{fault} ended with {status}:\n{process.err}")
    # Status 0: it had ended before, or the signal came to nothing.
    if fault.kind in ("term", "int", "hup") and status <= 0 and process.caught:
        raise Lost(f"{fault}: the signal was not heard:\n{process.err}")
    errors = [line for line in process.err.splitlines() if "error:" in line]
    if status == 2 and (
        len(errors) != 1 or process.err.splitlines()[-1:] != errors[:1]
    ):
        raise Lost(f"{fault}: not one line:\n{process.err}")
    saved = re.findall(r"^saved step (\d+)", process.err, re.MULTILINE)
    return int(saved[-1]) if saved else -1


def check_resumed(process: Process, known: int) -> None:
    """Whether the start went on from checkpoint `known` or a later one."""
    lines = process.err.partition("parameters on")[2].splitlines()[1:]
    said_first = ("on each device", "tokenizer:", "warning:", "log:", "to stop:")
    after = [line for line in lines if not line.startswith(said_first)]
    if known < 0 or not after:  # nothing was there, or it did not come so far
        return
    resumed = re.match(r"resuming at step (\d+)", after[0])
    if resumed is None or int(resumed[1]) < known:
        raise Lost(f"checkpoint {known} was there:\n{process.err}")


def check_same(home: Path, straight: Path) -> None:
    """Whether two finished runs are one."""
    home, straight = home / "run", straight / "run"
    ours, theirs = (lines(path / "metrics.jsonl") for path in (home, straight))
    if ours != theirs:
        number = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        raise Lost(f"{home}/metrics.jsonl:{number + 1} differs from the undisturbed")
    one, other = (texts(path) for path in (home, straight))
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            raise Lost(f"{home}/{name} differs")
    mine, its = (arrays(path) for path in (home, straight))
    if mine.keys() != its.keys():
        raise Lost(f"{home}: not the same weights: {sorted(mine.keys() ^ its.keys())}")
    for name, array in mine.items():
        if array.tobytes() != its[name].tobytes():
            raise Lost(f"{home}: {name} differs")


def texts(folder: Path) -> dict[str, bytes]:
    """The prediction files, and what else a run has learnt."""
    found = [*(folder / "predictions").rglob("*"), folder / "task.json"]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in found
        if path.is_file()
    }


def lines(path: Path) -> list[dict]:
    """metrics.jsonl but for times and speeds."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for line in found:
        for name in ("time", "sequences_per_second", "tokens_per_second"):
            line.pop(name, None)
    return found


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """The last checkpoint's whole state, and the best one's, by name."""
    found = {}
    for name in ("checkpoints", "best"):
        steps = [int(x.name) for x in (folder / name).glob("*") if x.name.isdigit()]
        for item in sorted(
            (folder / name / str(max(steps))).iterdir() if steps else ()
        ):
            if not item.is_dir():
                continue
            with ocp.PyTreeCheckpointer() as checkpointer, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of restoring as it was saved
                tree = checkpointer.restore(item)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
                place = f"{name}/{max(steps)}/{item.name}{jax.tree_util.keystr(path)}"
                found[place] = np.asarray(leaf)
    return found
