"""Faults in the commands of experiments/ and in launch/'s arguments.

    python -m tests.system.experiments_faults [--trials=200] [--seed=0]
    python -m tests.system.experiments_faults --only=17 --seed=0

Each trial is drawn from the seed and its number. `damaged`: a file that
experiments.sweeps.compare, glue or sweep reads is spoiled by rule; it must end well or
with status 2 and one line, and as before once the file is whole again. `killed`: glue
or sweep gets SIGKILL, SIGTERM or SIGINT at a random moment and is started again: all
that it leaves must be as of an undisturbed one. `together`: two at once. `arguments`:
of launch.sh tpu and local. experiments_program.py stands for the runs.

Prints a table by kind, and for each failure the command that makes it again.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_jax.runtime.cluster import local
from bert_jax.runtime.terminal import table
from experiments.lib import execution
from experiments.paper import glue
from experiments.sweeps import compare, sweep
from launch import tpu
from tests.system import malformed_files
from tests.system.experiments_homes import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
# Of ten trials: a damaged file is the cheapest.
KINDS = ("damaged",) * 6 + ("arguments",) * 2 + ("killed", "together")
_START = """
import sys
from tests.system import experiments_faults as faults
faults.stand_in()
sys.exit(faults.COMMANDS[sys.argv[1]](sys.argv[2:]))
"""
COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "compare": compare.main,
    "glue": glue.main,
    "sweep": sweep.main,
}
_ODD = ["", "²", "a/b", "..", "-", "--", "n" * 300, "é长", "a b", "a\nb", "\x00", "0"]
_ODD += [
    "9" * 5000,
    "2",
    "us-east5-a",
    "my-slice",
    "--x=1",
    "--devices=",
    "--devices=²",
]
_ODD += ["--run=", "--run=../x", "--setup=x", "--attach", "--stop", "--restart"]
_ODD += ["--recreate", "--dry-run", "--dryrun", "--dry-run=1", "--devices=2", "-h"]


class Broken(Exception):
    """A command that is not disturbed has not ended well."""


def stand_in() -> None:
    """From now on this process starts PROGRAM for each run."""
    execution.MAIN = PROGRAM


def arguments(command: str, folder: Path) -> list[str]:
    """Of a grid of four short runs in the folder, or of the table of glue's."""
    grid = ["--learning_rates=5e-5,3e-5", "--seeds=0,1", "--tasks=rte"]
    rates = "--grid=optimizer.learning_rate=5e-5,3e-5"
    return {
        "compare": [str(folder / "out" / "rte" / "*")],
        "glue": [f"--data={folder}", f"--output={folder / 'out'}", *grid],
        "sweep": [
            f"--config={ROOT / 'configs/finetune/glue.py'}:task=rte,size=tiny",
            *(rates, "--grid=seed=0,1", f"--output={folder / 'out'}"),
        ],
    }[command]


def ended(work: Callable[[], int]) -> tuple[int, str, str, str]:
    """Status, both outputs, and what is wrong with the end; empty if nothing is."""
    # With bytes behind them: what runs print is copied so.
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    status, fault = -1, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = work()
        except SystemExit as end:
            fault = f"SystemExit({end.code!r})"
        except BaseException:
            fault = traceback.format_exc(limit=-2)
    said, told = (x.buffer.getvalue().decode(errors="replace") for x in (out, err))  # type: ignore[attr-defined]
    return status, said, told, fault or judged(status, told)


def judged(status: int, told: str) -> str:
    """What is wrong with a command's end: it must be 0, or 2 after one line of error.

    Args:
      told: on standard error.
    """
    if status not in (0, 2):
        return f"status {status}"
    lines = told.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if status == 2 and (len(errors) != 1 or lines[-1] != errors[0]):
        return f"{len(errors)} lines of error, the last line {lines[-1:]}"
    if status == 2 and len(errors[0]) > 1500:
        return f"a line of {len(errors[0])} characters"
    return ""


def finished(folder: Path, command: str) -> str:
    """Runs a grid to its end; what it printed."""
    (folder / "RTE").mkdir(parents=True, exist_ok=True)
    made = "glue" if command == "compare" else command
    _, out, err, fault = ended(lambda: COMMANDS[made](arguments(made, folder)))
    if command == "compare":
        _, out, err, fault = ended(lambda: compare.main(arguments("compare", folder)))
    if fault or not out:
        raise Broken(f"{command}: {fault or err}")
    return out


def damaged(folder: Path, rng: random.Random) -> tuple[str, str]:
    """A file that a command reads is spoiled."""
    command = rng.choice([*COMMANDS])
    before = finished(folder, command)
    names = ("*.json", "*.jsonl")
    files = sorted(x for name in names for x in (folder / "out").rglob(name))
    path = rng.choice(files)
    whole = path.read_bytes()
    ways = malformed_files.of_content(path)
    way = rng.choice([*ways])
    path.write_bytes(ways[way](whole, rng))
    given = arguments(command, folder)
    status, _, _, fault = ended(lambda: COMMANDS[command](given))
    said = f"{command}, {path.relative_to(folder)}: {way}: status {status}"
    if not fault:
        path.write_bytes(whole)
        _, after, _, fault = ended(lambda: COMMANDS[command](given))
        if not fault and after != before:
            fault = "another result once the file is whole again"
    return said, fault


def start(command: str, folder: Path) -> subprocess.Popen:
    """A command as a process of its own, whose runs take some tenths of a second."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PROGRAM_PAUSE": "0.03"}
    return subprocess.Popen(
        [sys.executable, "-c", _START, command, *arguments(command, folder)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def killed(folder: Path, rng: random.Random) -> tuple[str, str]:
    """A command ends by a signal at a random moment, and is started again."""
    command = rng.choice(["glue", "sweep"])
    sent = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    (folder / "RTE").mkdir(parents=True)
    process = start(command, folder)
    wanted = rng.randrange(10)  # files that are there when the signal is sent
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if len([*folder.glob("out/**/metrics.jsonl")]) * 2 >= wanted:
            break
        time.sleep(0.005)
    time.sleep(rng.uniform(0, 0.2))
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    said = f"{command}, {sent.name} at {wanted} files: status {process.returncode}"
    if b"Traceback" in err and sent == signal.SIGKILL:
        return said, err.decode()[-300:]
    time.sleep(0.3)  # a run that it had started saves itself
    return said, _as_undisturbed(command, folder)


def together(folder: Path, rng: random.Random) -> tuple[str, str]:
    """Two of a command at once."""
    command = rng.choice(["glue", "sweep"])
    (folder / "RTE").mkdir(parents=True)
    first = start(command, folder)
    time.sleep(rng.uniform(0, 2.5))
    second = start(command, folder)
    ends = [(x.communicate(timeout=120)[1], x.returncode) for x in (first, second)]
    said = f"two of {command}: statuses {[status for _, status in ends]}"
    for err, status in ends:
        if b"Traceback" in err or status not in (0, 2):
            return said, err.decode()[-300:]
    return said, _as_undisturbed(command, folder)


def _as_undisturbed(command: str, folder: Path) -> str:
    """What differs, once the same command has gone on, from one never disturbed."""
    other = folder / "other"
    found, expected = finished(folder, command), finished(other, command)
    if found.replace(str(folder), "") != expected.replace(str(other), ""):
        return f"printed {found!r}, undisturbed {expected!r}"
    numbers = [
        {x.parent.name[:40]: x.read_bytes() for x in (y / "out").rglob("metrics.jsonl")}
        for y in (folder, other)
    ]
    left = [x for x in (folder / "out").rglob(".*.bert_jax") if x.exists()]
    if numbers[0] != numbers[1]:
        return "other numbers in metrics.jsonl"
    return f"left behind: {left}" if left else ""


def odd_arguments(folder: Path, rng: random.Random) -> tuple[str, str]:
    """launch.sh tpu prints what it would call, or says what is wrong; local too."""
    words = [rng.choice(_ODD) for _ in range(rng.randrange(1, 6))]
    folder.mkdir(parents=True)
    if rng.random() < 0.7:
        if rng.random() < 0.5:
            words = ["my-slice", "us-east5-a", *words, "--", "--x"]
        status, _, _, fault = ended(lambda: tpu.main(folder, ["--dry-run", *words]))
        return f"tpu {words!r:.200}: status {status}", fault
    words = [word for word in words if word != "2"]  # would start it
    status, _, _, fault = ended(lambda: local.main([*words, "--", "--x"]))
    return f"local {words!r:.200}: status {status}", fault


def trial(number: int, seed: int, folder: Path) -> tuple[str, str, str]:
    """Kind, what was done, and what is wrong; empty if nothing is."""
    rng = random.Random(f"{seed}:{number}")
    kind = KINDS[number % len(KINDS)]
    work = {
        "damaged": damaged,
        "killed": killed,
        "together": together,
        "arguments": odd_arguments,
    }[kind]
    try:
        return (kind, *work(folder / "case", rng))
    except Broken as error:
        return kind, "an undisturbed command", str(error)


def run(numbers: Sequence[int], seed: int) -> list[tuple[int, str, str, str]]:
    """The trials of these numbers."""
    stand_in()
    found = []
    for number in numbers:
        folder = Path(tempfile.mkdtemp(prefix="bert_jax.experiments."))
        try:
            found.append((number, *trial(number, seed, folder)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def report(
    found: Sequence[tuple[int, str, str, str]],
    seed: int,
    module: str = "experiments_faults",
) -> str:
    """How many of each kind; and each failure, with the command that makes it again."""
    tried, wrong = (
        Counter(kind for _, kind, _, fault in found if fault or not only)
        for only in (False, True)
    )
    rows = [(kind, str(tried[kind]), str(wrong[kind])) for kind in sorted(tried)]
    blocks = [table(rows, ("", "tried", "wrong"))]
    for number, kind, said, fault in found:
        if fault:
            blocks.append(
                f"{kind}: {said}\n  {fault}\n  python -m "
                f"tests.system.{module} --only={number} --seed={seed}"
            )
    return "\n\n".join([*blocks, f"{sum(wrong.values())} failed"])


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this trial, and what it does")
    options = parser.parse_args(argv)
    numbers = range(options.trials) if options.only is None else [options.only]
    found = run(numbers, options.seed)
    if options.only is not None:
        print(found[0])
    print(report(found, options.seed))
    return int(any(fault for *_, fault in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
