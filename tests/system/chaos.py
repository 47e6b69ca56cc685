"""Breaks a small pre-training again and again, and looks whether anything is lost.

    python -m tests.system.chaos [--faults=50] [--steps=80] [--seed=0] [--folder=DIR]

A run is trained undisturbed. Then the same run is trained under faults and started
again after each; where it ends before the faults do, another round begins in a new
folder. A fault is one of

    kill   SIGKILL
    term   SIGTERM
    int    SIGINT, as Ctrl-C
    hup    SIGHUP, as of a terminal that is closed
    full   no file can grow any more, until the process has ended

at one of these moments, each of the twenty-five as often as the others:

    start     somewhere between the start of Python and the first step
    compile   while the step is compiled
    step      between or in training steps
    save      while a checkpoint is being written
    evaluate  while the held-out text is evaluated

The full disk is RLIMIT_FSIZE = 0, set from outside in the running process: every write
that makes a file longer fails, with EFBIG in the place of ENOSPC, for Python as for the
libraries; it needs neither root nor a disk of its own. That the space is counted before
saving is tested elsewhere (tests/errors_test.py, tests/workdir/checkpoint_test.py).

What must hold, or the exit status is 1:
- a killed process is the only one that dies without a word; the other signals end with
  143, 130 and 129 (or by the signal itself before the program has started), a full disk
  with 2 and one line;
- each start goes on from the newest checkpoint that was there, or from a newer one,
  and after a signal from the step that it said was saved; no checkpoint is damaged;
- at the end metrics.jsonl (but for times and speeds), parameters, optimizer state and
  predictions are those of the undisturbed run, bit for bit.
"""

import argparse
import functools
import os
import platform
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import jax

from bert_jax.runtime.terminal import table
from tests.forked import FLAGS, ROOT, Forked
from tests.system.chaos_process import (
    Fault,
    Lost,
    Process,
    await_moment,
    check_end,
    check_resumed,
    check_same,
    newest,
)

KINDS = ("kill", "term", "int", "hup", "full")
MOMENTS = ("start", "compile", "step", "save", "evaluate")
SAVE_EVERY, EVAL_EVERY = 8, 10

CONFIG = """
extends = "tiny:recipe=plain"

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


# Starts a training in a home folder, from the beginning or from where it stopped.
Start = Callable[[Path], Process]


def undisturbed(start: Start, home: Path) -> dict[str, float]:
    """Trains without a fault; gives how many seconds starting and compiling take.

    Raises:
      Lost: the run fails by itself.
    """
    process, times = start(home), [time.monotonic()]
    for text in ("parameters on", "step 1/"):
        process.says(text)
        times.append(time.monotonic())
    if process.end():
        raise Lost(f"the undisturbed run failed:\n{process.err}")
    return {"start": times[1] - times[0], "compile": times[2] - times[1]}


def disturbed(
    start: Start,
    faults: Sequence[Fault],
    lasts: dict[str, float],
    rng: random.Random,
    folder: Path,
    straight: Path,
    tell: Callable[[str], None] = print,
) -> tuple[Counter, int]:
    """Trains under the faults, in `round_1`, `round_2`, ... of a folder; gives how
    often each fault ended how, and the rounds.

    Args:
      lasts: of `undisturbed`.
      straight: the home of the undisturbed run.

    Raises:
      Lost: what must hold does not.
    """
    left = list(faults)
    ended: Counter = Counter()
    rounds, known = 1, -1
    while True:
        home = folder / f"round_{rounds}"
        process = start(home)
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
        now = newest(process.folder)
        if now < max(known, said):
            raise Lost(f"checkpoint {max(known, said)} is gone:\n{process.err}")
        known = now
        if fault:
            number = sum(ended.values())
            tell(f"{number:3} {fault.kind} {fault.moment}: {status}, at {known}")
        if status == 0:
            check_same(home, straight)
            if not left:
                return ended, rounds
            rounds, known = rounds + 1, -1


def real_process(*arguments: str) -> subprocess.Popen:
    """Starts the program as a user does."""
    # nohup ignores it, and so does libtpu from the first use of JAX in this process on;
    # what a parent ignores a child ignores.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    return subprocess.Popen(
        [sys.executable, "-m", "bert_jax.main", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    faults: Sequence[Fault],
    steps: int,
    rng: random.Random,
    folder: Path,
    program: Callable[..., subprocess.Popen | Forked] = real_process,
) -> tuple[Counter, int]:
    """Does it all for pre-training, in an empty folder; see `disturbed`.

    Args:
      program: starts bert_jax.main with the arguments that it is given.
    """
    config = write_config(folder, steps)

    def start(home: Path) -> Process:
        data = f"--config.corpus.data_dir={home}/data"
        return Process(
            program(f"--config={config}", f"--workdir={home}/run", data), home
        )

    straight = folder / "straight"
    lasts = undisturbed(start, straight)
    tell = functools.partial(print, flush=True)
    return disturbed(start, faults, lasts, rng, folder, straight, tell)


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
    print(f"$ {shlex.join(['python', '-m', 'tests.system.chaos', *argv])}")
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
