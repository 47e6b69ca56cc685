"""Breaks a small pre-training again and again, and looks whether anything is lost.

    python -m experiments.chaos [--faults=50] [--steps=80] [--seed=0] [--folder=DIR]

A run is trained undisturbed. Then the same run is trained under faults and started
again after each; where it ends before the faults do, another round begins in a new
folder. A fault is one of

    kill   SIGKILL
    term   SIGTERM
    full   no file can grow any more, until the process has ended

at one of these moments, each of the fifteen as often as the others:

    start     somewhere between the start of Python and the first step
    compile   while the step is compiled
    step      between or in training steps
    save      while a checkpoint is being written
    evaluate  while the held-out text is evaluated

The full disk is RLIMIT_FSIZE = 0, set from outside in the running process: every write
that makes a file longer fails, with EFBIG in the place of ENOSPC, for Python as for the
libraries; it needs neither root nor a disk of its own. That the space is counted before
saving is tested elsewhere (tests/errors_test.py, tests/checkpoint_test.py).

What must hold, or the exit status is 1:
- a killed process is the only one that dies without a word; SIGTERM ends with 143 (or
  by the signal itself before the program has begun), a full disk with 2 and one line;
- each start goes on from the newest checkpoint that was there, or from a newer one,
  and after SIGTERM from the step that it said was saved; no checkpoint is damaged;
- at the end metrics.jsonl (but for times and speeds), parameters, optimizer state and
  predictions are those of the undisturbed run, bit for bit.
"""

import argparse
import json
import os
import platform
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import configuration, initial, optimizer, sharding
from bert_jax.checkpoint import Checkpoints
from bert_jax.metrics import table

KINDS = ("kill", "term", "full")
MOMENTS = ("start", "compile", "step", "save", "evaluate")
PATIENCE = 300  # seconds; a process that takes longer hangs
SAVE_EVERY, EVAL_EVERY = 8, 10

CONFIG = """
extends = "tiny"

def get_config(config):
    config.model.hidden_size = 32
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 64
    config.model.max_position_embeddings = 32
    config.model.hidden_dropout_prob = 0.1
    config.model.attention_probs_dropout_prob = 0.1
    config.tokenizer.vocab_size = 64
    config.corpus.sources = ("sentences:{corpus}",)
    config.corpus.max_seq_length = 32
    config.corpus.dev_fraction = 0.2
    config.masking.max_predictions_per_seq = 6
    config.train.num_steps = {steps}
    config.train.batch_size = 16
    config.train.log_every = 1
    config.train.eval_every = {eval_every}
    config.evaluate.batch_size = 16
    config.checkpoint.save_every = {save_every}
    config.checkpoint.keep_every = {keep_every}
    return config
"""


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
    after = process.err.partition("parameters on")[2].splitlines()[1:]
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
        restored = checkpoints.restore(abstract)
    assert restored is not None
    leaves = jax.tree_util.tree_leaves_with_path(restored[0])
    return [(jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in leaves]


def write_config(folder: Path, steps: int) -> Path:
    """A corpus of sixty short documents, and the config."""
    rng = random.Random(0)
    words = "the quick brown fox jumps over a lazy dog while seven cats watch it go"
    documents = [
        [" ".join(rng.choices(words.split(), k=rng.randint(3, 8))) for _ in range(n)]
        for n in rng.choices(range(4, 12), k=60)
    ]
    corpus, path = folder / "corpus.txt", folder / "chaos.py"
    corpus.write_text("\n\n".join(map("\n".join, documents)) + "\n")
    path.write_text(
        CONFIG.format(
            corpus=corpus,
            steps=steps,
            eval_every=EVAL_EVERY,
            save_every=SAVE_EVERY,
            keep_every=4 * SAVE_EVERY,
        )
    )
    return path


def draw(count: int, rng: random.Random) -> list[Fault]:
    """Each fault as often as the others, in any order."""
    every = [Fault(kind, moment) for kind in KINDS for moment in MOMENTS]
    faults: list[Fault] = []
    while len(faults) < count:
        faults += rng.sample(every, len(every))
    return faults[:count]


def run(
    faults: Sequence[Fault], steps: int, rng: random.Random, folder: Path
) -> tuple[Counter, int]:
    """Does it all in an empty folder; gives how often each fault ended how, and the
    rounds.

    Raises:
      Lost: what must hold does not.
    """
    left = list(faults)
    config, straight = write_config(folder, steps), folder / "straight"
    undisturbed, times = Process(config, straight), [time.monotonic()]
    for text in ("parameters on", "step 1/"):
        undisturbed.says(text)
        times.append(time.monotonic())
    if undisturbed.end():
        raise Lost(f"the undisturbed run failed:\n{undisturbed.err}")
    lasts = {"start": times[1] - times[0], "compile": times[2] - times[1]}

    ended: Counter = Counter()
    rounds, known = 1, -1
    while True:
        place = folder / f"round_{rounds}"
        process = Process(config, place)
        fault = left[0] if left else None
        said = -1
        if fault and await_moment(process, fault.moment, lasts, rng):
            process.suffer(fault.kind)
            status = process.end()
            said = check_end(process, fault, status)
            left.pop(0)
            ended[(*fault, status)] += 1
        else:
            fault, status = None, process.end()
            if status:
                raise Lost(f"ended with {status} by itself:\n{process.err}")
        check_resumed(process, known)
        now = newest(place)
        if now < max(known, said):
            raise Lost(f"checkpoint {max(known, said)} is gone:\n{process.err}")
        known = now
        if fault:
            number = sum(ended.values())
            told = f"{number:3} {fault.kind} {fault.moment}: {status}, at {known}"
            print(told, flush=True)
        if status == 0:
            check_same(config, place, straight)
            if not left:
                return ended, rounds
            rounds, known = rounds + 1, -1


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--steps", type=int, default=80, help="of the run")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--folder", type=Path, help="an empty one, to be kept")
    options = parser.parse_args(argv)
    start = time.monotonic()
    print(f"$ {shlex.join(['python', '-m', 'experiments.chaos', *argv])}")
    print(f"{date.today()}, {processor()}, {os.cpu_count()} cores, CPU,", end=" ")
    print(f"Python {platform.python_version()}, jax {jax.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            rng = random.Random(options.seed)
            faults = draw(options.faults, rng)
            ended, rounds = run(faults, options.steps, rng, folder.absolute())
        except Lost as lost:
            print(f"LOST: {lost}")
            return 1
    header = ("fault", *MOMENTS)
    rows = [(kind, *(shown(ended, kind, m) for m in MOMENTS)) for kind in KINDS]
    print("\nfaults by kind and moment, with the exit statuses\n")
    print(table(rows, header))
    print(
        f"\n{sum(ended.values())} faults, {rounds} run(s) of {options.steps} steps, "
        f"{time.monotonic() - start:.0f} s: metrics, parameters, optimizer state and "
        "predictions of each are those of the undisturbed run, bit for bit"
    )
    return 0


def shown(ended: Counter, kind: str, moment: str) -> str:
    """A cell of the report: how many, and how they ended."""
    found = {
        status: number
        for (one, at, status), number in ended.items()
        if (one, at) == (kind, moment)
    }
    statuses = ", ".join(map(str, sorted(found)))
    return f"{sum(found.values())} ({statuses})" if found else "0"


def processor() -> str:
    """The processor's name, where Linux tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
