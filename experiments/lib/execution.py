"""Runs what remains of a plan, one process at a time."""

import contextlib
import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import temporary, terminal
from bert_jax.runtime.storage import make_folder, write_atomically
from experiments.lib import progress, running
from experiments.lib.runs import Run
from experiments.paper import budget

MAIN = running.PROGRAM
BUDGET = (sys.executable, "-m", "experiments.paper.budget")
# SIGHUP, Ctrl-C and SIGTERM: the run has saved; the same command goes on there. Less
# than 0: the signal came as Python started or ended.
_STOPPED = {**{n: n for n in (129, 130, 143)}, -1: 129, -2: 130, -15: 143}
_DEVICES = re.compile(rb"parameters on (\d+ x [^\n(]+?) \(")


@contextlib.contextmanager
def alone(output: Path) -> Iterator[int]:
    """Holds the output folder; yields the lock, which every run inherits.

    So a run that outlives a killed start still holds it while it saves.

    Raises:
      UserError: another start holds it.
    """
    make_folder(output)
    file = os.open(output / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"--output={output}: another start, or a run that one left, is at work "
                "there; wait until it ends, or name another folder"
            ) from None
        except OSError as error:
            if error.errno not in temporary.NO_LOCKS:
                raise
        yield file
    finally:
        os.close(file)


def check(runs: Sequence[Run]) -> None:
    """Raises UserError for the first run whose config is wrong; none has begun."""
    for run in runs:
        if not run.program:
            running.check(run.arguments, has_steps=not run.words)


def run_all(runs: Sequence[Run], errors: dict[Path, str], lock: int) -> int:
    """Runs what is not done.

    Args:
      errors: gets the error of each run that failed, by folder.
      lock: see `alone`.

    Returns:
      0, or the status to end with where a signal stopped a run.
    """
    for number, run in enumerate(runs, 1):
        if (run.folder / "result.json").exists():
            continue
        if failed := [folder for folder in run.needs if folder in errors]:
            errors[run.folder] = f"not run: {failed[0]} failed"
            continue
        begin = f"run {number} of {len(runs)}: {run.folder}"
        terminal.say(f"{begin} ({progress.estimate(runs)})")
        status, error = _run(run, lock)
        if status in _STOPPED:
            return _STOPPED[status]
        if error:
            errors[run.folder] = error
            terminal.say(f"failed: {run.folder}: {error}")
    return 0


def command(run: Run) -> list[str]:
    """What is run; its steps are missing until its budget is known."""
    if run.program:
        output = f"--output={run.folder / run.file}"
        return [*run.program, *run.arguments, output]
    steps: tuple[str, ...] = ()
    if run.budget.exists():
        steps = (f"--config.train.num_steps={budget.read(run.budget).steps}",)
    return [*MAIN, *run.arguments, *steps, f"--workdir={run.folder}"]


def _run(run: Run, lock: int) -> tuple[int, str]:
    """Runs it to its end; returns its status, and its error if it failed."""
    failed, log = run.beside(".failed.json"), run.beside(".log")
    failed.unlink(missing_ok=True)
    logged = log.stat().st_size if log.exists() else 0
    start, status = time.monotonic(), 0
    if run.words and not run.budget.exists():
        first = [*BUDGET, *run.arguments, f"--words={run.words}"]
        status = running.wait([*first, f"--output={run.budget}"], log, [lock])
        start = time.monotonic()
    if not status:
        status = running.wait(command(run), log, [lock])
    seconds = time.monotonic() - start
    text = log.read_bytes()[logged:]
    if status in _STOPPED:
        return status, ""
    result: dict[str, Any] = {"command": command(run), "seconds": seconds}
    if status == 0:
        devices = _DEVICES.search(text)
        result["devices"] = devices[1].decode() if devices else ""
        result["baseline"] = _baseline(text.decode(errors="replace"))
        make_folder(run.folder)
        write_atomically(run.folder / "result.json", _json(result))
        return 0, ""
    error = _last_error(text.decode(errors="replace"), status)
    write_atomically(failed, _json({**result, "status": status, "error": error}))
    return status, error


def _baseline(text: str) -> dict[str, dict[str, float]]:
    """The majority baseline's scores by split, in the tables that a run printed."""
    found: dict[str, dict[str, float]] = {}
    split = ""
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if cells[1:] == ["model", "majority baseline"]:
            split = cells[0]
        elif not line.strip():
            split = ""
        elif split and len(cells) == 3 and not line.startswith("-"):
            found.setdefault(split, {})[cells[0]] = float(cells[2])
    return found


def _last_error(text: str, status: int) -> str:
    """The error in what a run printed: its last line that begins so, else its last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    said = (errors or lines or [""])[-1].removeprefix("error: ")
    end = f"signal {-status}" if status < 0 else f"status {status}"
    return said if errors else f"{said} (ended by {end})".strip()


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
