"""One training under a fault, and what must hold of it; see experiments/chaos.py."""

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import configuration, initial, optimizer, sharding
from bert_jax.checkpoint import Checkpoints

PATIENCE = 300  # seconds; a process that takes longer hangs


class Fault(NamedTuple):
    kind: str
    moment: str


class Lost(Exception):
    """Something that must hold does not."""


class Process:
    """A training in a process of its own, and what it says."""

    def __init__(self, config: Path, folder: Path):
        self.folder = folder
        self.err = ""
        flags = (
            "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes"
            "=true --xla_force_host_platform_device_count=1"
        )
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "bert_jax.main", f"--config={config}"),
                *(f"--workdir={folder}", f"--config.corpus.data_dir={folder}-data"),
            ],
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
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
            self._process.send_signal(
                {"kill": signal.SIGKILL, "term": signal.SIGTERM}[kind]
            )

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
    """The newest finished checkpoint's step; -1 where there is none."""
    names = [path.name for path in (folder / "checkpoints").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def check_end(process: Process, fault: Fault, status: int) -> int:
    """Whether the process ended as it must; gives the step that it said was saved."""
    before_main = -signal.SIGTERM
    allowed = {"kill": [-signal.SIGKILL], "term": [143, before_main], "full": [2]}
    if status not in (*allowed[fault.kind], 0):  # 0: it was through
        raise Lost(f"{fault} ended with {status}:\n{process.err}")
    if status == before_main and "parameters on" in process.err:
        raise Lost(f"{fault}: SIGTERM was not heard:\n{process.err}")
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
    said_first = ("on each device", "tokenizer:", "warning:")
    after = [line for line in lines if not line.startswith(said_first)]
    if known < 0 or not after:  # nothing was there, or it did not come so far
        return
    resumed = re.match(r"resuming at step (\d+)", after[0])
    if resumed is None or int(resumed[1]) < known:
        raise Lost(f"checkpoint {known} was there:\n{process.err}")


def check_same(config: Path, folder: Path, straight: Path) -> None:
    """Whether two finished runs are one."""
    ours, theirs = (lines(path / "metrics.jsonl") for path in (folder, straight))
    if ours != theirs:
        number = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        raise Lost(f"{folder}/metrics.jsonl:{number + 1} differs from the undisturbed")
    one, other = (
        (path / "predictions" / "dev.jsonl").read_bytes() for path in (folder, straight)
    )
    if one != other:
        raise Lost(f"{folder}/predictions/dev.jsonl differs")
    for (name, array), (_, same) in zip(
        *(arrays(config, path) for path in (folder, straight)), strict=True
    ):
        if array.tobytes() != same.tobytes():
            raise Lost(f"{folder}: {name} differs")


def lines(path: Path) -> list[dict]:
    """metrics.jsonl but for times and speeds."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for line in found:
        for name in ("time", "sequences_per_second", "tokens_per_second"):
            line.pop(name, None)
    return found


def arrays(spec: Path, folder: Path) -> list[tuple[str, np.ndarray]]:
    """The last checkpoint's whole state, by name."""
    args = [f"--config.corpus.data_dir={folder}-data"]
    loaded = configuration.load(str(spec), args)
    task = initial.resolve(loaded, folder, from_data=True)
    mesh = sharding.make_mesh(task.config)
    abstract = sharding.abstract_state(
        task.init_params, optimizer.make(task.config), mesh
    )
    with Checkpoints(folder, 1) as checkpoints:
        restored = checkpoints.restore(abstract.items())
    assert restored is not None
    leaves = jax.tree_util.tree_leaves_with_path(restored[0])
    return [(jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in leaves]
