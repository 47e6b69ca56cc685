"""Faults in the commands of experiments/ that read models, data or text.

    python -m tests.system.experiments_models [--trials=100] [--seed=0] [--jobs=2]
    python -m tests.system.experiments_models --only=17 --seed=0 [--commands=glue,sweep]

Each trial is drawn from the seed and its number, of experiments_commands.py. `damaged`:
a file that the command reads is spoiled by rule; it must end well or with status 2 and
one line that names the file, and as before once the file is whole again. `killed`: it
gets a signal at a random moment and is started again; `together`: two at once; `full`:
no room on the disk, or no right to write. What these leave must be as of an undisturbed
command. `arguments`: odd ones.

experiments_program.py stands for the programs that a command starts; all else is the
real program, with micro models. Prints a table by command and kind, and for
each failure the command that makes it again.
"""

import argparse
import concurrent.futures
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.lib import command_line
from tests.system import malformed_files
from tests.system.experiments_commands import COMMANDS
from tests.system.experiments_faults import judged, report
from tests.system.experiments_homes import Homes, names, result

KINDS = ("damaged",) * 5 + ("arguments",) * 3 + ("killed", "killed", "together", "full")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# How a command ends after them; where it goes on, it may also have ended well.
STOPPED = (0, -9, -15, -2, 143, 130)
_LONG = "n" * 300
ODD = ["", "²", "长", "é 长", _LONG, "-1", "0", "1e999", "nan", "9" * 30, "1.5", "true"]
ODD += [
    "in/corpus.txt/x",
    "nowhere",
    "nowhere/x",
    "in",
    "in/corpus.txt",
    ".",
    "..",
    ",",
]
ODD += ["2,2", "a,b", "-", "--", "in/data/NER", "s3://a/b", "hf://a", "\n", "*", "None"]
MORE = ["--nothing=1", "nothing", "--config.nothing=1", "--config.train.batch_size=²"]
MORE += ["--config.seed=-1", "--config.optimizer.learning_rate=nan", "--plan=1", "-h"]
MORE += ["--config.task.max_seq_length=0", "--config.=1", "--config.seed", "--plot=1"]


_ROOMS = ("in", "out", "data", "run", "more")  # folders whose names tell no file


def named(path: Path, told: str) -> bool:
    """Whether the line of error names a file, or its folder."""
    line = told.splitlines()[-1]
    return any(part in line for part in path.parts if part not in _ROOMS)


def damaged(homes: Homes, name: str, home: Path, rng: random.Random) -> tuple[str, str]:
    """A file that a command reads is spoiled; it is there already, or not."""
    done = homes.finished(name)
    files = [x for p in COMMANDS[name].reads for x in done.glob(p) if x.is_file()]
    if not files or rng.random() < 0.5:
        files = [x for x in (done / "out").rglob("*") if x.is_file()]
    place = rng.choice(sorted(files)).relative_to(done)
    if place.parts[0] == "out" or rng.random() < 0.7:
        shutil.copytree(done, home)
    else:
        homes.fresh(name, home)
    path = home / place
    whole, before = path.read_bytes(), result(name, home)
    ways = malformed_files.of_content(path)
    stands = {} if path.suffix == "" else {**malformed_files.IN_ITS_PLACE}
    if f"--output={place}" in COMMANDS[name].arguments:
        del stands["a FIFO"]  # it is written to, once somebody reads it
    way = rng.choice([*ways, *stands])
    if way in ways:
        path.write_bytes(ways[way](whole, rng))
    else:
        stands[way](path)
    status, _, told = homes.run(name, home)
    last = told.strip().splitlines()[-1:]
    said = f"{name}, {place}: {way}: status {status} {last}"
    fault = judged(status, told)
    if not fault and status == 2 and not named(place, told):
        fault = f"the line does not name {place}"
    its = path.name == Path(COMMANDS[name].result).name
    if not fault and status == 2 and not its and result(name, home) != before:
        fault = "refused, and yet its result is another"
    if fault:
        return said, f"{fault}\n{told[-700:]}"
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_bytes(whole)
    if status == 0 and place.parts[0] != "out":
        return said, ""
    return said, _as_undisturbed(homes, name, home, only_result=True)


def killed(homes: Homes, name: str, home: Path, rng: random.Random) -> tuple[str, str]:
    """A command ends by a signal at a random moment, and is started again."""
    homes.finished(name)
    homes.fresh(name, home)
    sent = rng.choice(SIGNALS)
    process = homes.start(name, home)
    moment = rng.uniform(0, 1.1) * homes.seconds[name]
    end = time.monotonic() + moment
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(sent)
    status, _, told = homes.end(process)
    said = f"{name}, {sent.name} after {moment:.1f} s: status {status}"
    if status not in STOPPED or "Traceback" in told:
        return said, f"status {status}\n{told[-700:]}"
    return said, _as_undisturbed(homes, name, home)


def together(
    homes: Homes, name: str, home: Path, rng: random.Random
) -> tuple[str, str]:
    """Two of a command at once."""
    homes.finished(name)
    homes.fresh(name, home)
    first = homes.start(name, home)
    time.sleep(rng.uniform(0, 0.9) * homes.seconds[name])
    ends = [homes.end(x) for x in (first, homes.start(name, home))]
    said = f"two of {name}: statuses {[status for status, *_ in ends]}"
    for status, _, told in ends:
        if fault := judged(status, told):
            return said, f"{fault}\n{told[-700:]}"
    return said, _as_undisturbed(homes, name, home)


def full(homes: Homes, name: str, home: Path, rng: random.Random) -> tuple[str, str]:
    """The disk is full after some bytes of a file, or its folder may not be written."""
    homes.finished(name)
    homes.fresh(name, home)
    if rng.random() < 0.3:
        way = {"READ_ONLY": "1"}
        (home / "out").chmod(0o555)
    else:
        way = {"LIMIT": rng.choice(["1", "100", "1000", "5000", "20000"])}
    status, _, told = homes.run(name, home, **way)
    last = told.strip().splitlines()[-1:]
    said = f"{name}, {way}: status {status} {last}"
    fault = judged(status, told)
    places = ("out", tempfile.gettempdir())  # a corpus is made aside, say
    if not fault and status == 2 and not any(place in last[0] for place in places):
        fault = "the line names no file"
    if fault:
        return said, f"{fault}\n{told[-700:]}"
    if status == 2 and result(name, home) is not None:
        return said, "refused, and yet there is a result"
    (home / "out").chmod(0o755)
    return said, _as_undisturbed(homes, name, home)


def odd_arguments(
    homes: Homes, name: str, home: Path, rng: random.Random
) -> tuple[str, str]:
    """One or two arguments are changed, left out, repeated or added."""
    homes.fresh(name, home)
    given = list(COMMANDS[name].arguments)
    changed = []
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(given) + 1)
        if at == len(given):
            given.append(rng.choice(MORE))
        elif rng.random() < 0.1 and not given[at].startswith("--size"):
            # Without it a model is as large as the paper's.
            changed.append(f"without {given.pop(at)}")
            continue
        else:
            option, equals, _ = given[at].partition("=")
            given[at] = (
                f"{option}{equals}{rng.choice(ODD)}" if equals else (rng.choice(ODD))
            )
        changed.append(given[at])
    status, _, told = homes.run(name, home, given)
    last = told.strip().splitlines()[-1:]
    said = f"{name} {changed!r:.300}: status {status} {last}"
    fault = judged(status, told)
    if not fault and status == 2 and result(name, home) is not None:
        fault = "refused, and yet there is a result"
    return said, fault and f"{fault}\n{told[-700:]}"


def _as_undisturbed(
    homes: Homes, name: str, home: Path, only_result: bool = False
) -> str:
    """What differs, once the same command has gone on, from one never disturbed.

    Args:
      only_result: not which files there are.
    """
    done = homes.finished(name)
    for _ in range(20):
        status, _, told = homes.run(name, home)
        if status != 2 or "at work there" not in told:
            break
        time.sleep(0.5)  # a run that the killed one had started saves itself
    if status:
        return f"afterwards: status {status}\n{told[-700:]}"
    found, expected = result(name, home), result(name, done)
    if found != expected:
        return (
            f"afterwards another result: {str(found)[:600]}\nnot {str(expected)[:600]}"
        )
    more, fewer = names(home) - names(done), names(done) - names(home)
    left = {x for x in more if x.endswith((".bert_jax", ".part", ".npz"))}
    if left or (not only_result and (more or fewer)):
        return f"afterwards other files: more {sorted(more)}, fewer {sorted(fewer)}"
    return ""


WORK = {
    "damaged": damaged,
    "killed": killed,
    "together": together,
    "full": full,
    "arguments": odd_arguments,
}


def trial(
    homes: Homes, number: int, seed: int, commands: Sequence[str]
) -> tuple[str, str, str]:
    """Command and kind, what was done, and what is wrong; empty if nothing is."""
    rng = random.Random(f"{seed}:{number}")
    kind = KINDS[number % len(KINDS)]
    name = rng.sample([*commands], len(commands))[0]
    folder = Path(tempfile.mkdtemp(prefix="bert_jax.experiments."))
    try:
        said, fault = WORK[kind](homes, name, folder / "home", rng)
        return f"{name}, {kind}", said, fault
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(
    numbers: Sequence[int],
    seed: int,
    jobs: int = 1,
    commands: Sequence[str] = tuple(COMMANDS),
) -> list[tuple[int, str, str, str]]:
    """The trials of these numbers, some at a time; tells of each on standard error."""
    homes = Homes()

    def attempt(number: int) -> tuple[int, str, str, str]:
        found = trial(homes, number, seed, commands)
        print(number, *found[:2], found[2] or "right", sep="; ", file=sys.stderr)
        return (number, *found)

    try:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(attempt, numbers))
    finally:
        homes.close()


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the first trial's number")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    several = command_line.several(str, COMMANDS)
    parser.add_argument(
        "--commands", type=several, default=[*COMMANDS], help="of these"
    )
    parser.add_argument("--only", type=int, help="this trial, and what it does")
    options = parser.parse_args(argv)
    numbers = range(options.start, options.start + options.trials)
    given = numbers if options.only is None else [options.only]
    found = run(given, options.seed, options.jobs, options.commands)
    if options.only is not None:
        print(*found[0], sep="\n")
    module = "experiments_models"
    if options.commands != [*COMMANDS]:
        module += f" --commands={shlex.quote(','.join(options.commands))}"
    print(report(found, options.seed, module))
    return int(any(fault for *_, fault in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
