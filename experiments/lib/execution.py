"""Runs what remains of a plan, one process at a time: a line each, then a report."""

import contextlib
import fcntl
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bert_jax.errors import UserError, printable
from bert_jax.runtime import temporary, terminal
from bert_jax.runtime.storage import make_folder
from experiments.lib import command_line, kept, progress, running
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
    with (output / ".lock").open("a") as file:
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
        yield file.fileno()


def finish(
    runs: Sequence[Run],
    options: Any,
    report: Callable[[Mapping[Path, str]], str],
    *,
    before: Callable[[], object] = lambda: None,
    needs: tuple[str, str, str] | None = None,
    partial: bool = False,
) -> int:
    """Runs what is not done, then prints the report; gives the exit status.

    Args:
      options: see `command_line.Parser.add_run_options`.
      report: gets the error of each run that failed, by folder; returns what to print.
      before: makes what the runs read, once the folder is held.
      needs: what the report needs, see `command_line.require`.
      partial: reports even if runs failed or a signal stopped them.

    Raises:
      UserError: a run's config is wrong, and none has begun; another start is at work
        in the folder.
    """
    for run in runs:
        if not run.program:
            running.check(run.arguments, has_steps=not run.words)
    if options.plan:
        print(progress.overview(runs))
        return 0
    if needs:
        command_line.require(*needs)
    errors: dict[Path, str] = {}
    with alone(options.output) as lock:
        before()
        status = run_all(runs, errors, lock, verbose=options.verbose)
        if partial or not (status or errors):
            print(report(errors))
    if status:
        terminal.say("stopped; the same command goes on there")
    elif errors:
        folder, error = next(iter(errors.items()))
        count = f"{len(errors)} of {len(runs)} runs failed, the first {folder}"
        again = "the same command tries them again"
        terminal.say(f"error: {printable(f'{count}: {error}')}; {again}")
        status = 2
    return status


def run_all(
    runs: Sequence[Run], errors: dict[Path, str], lock: int, *, verbose: bool = False
) -> int:
    """Runs what is not done.

    Args:
      errors: gets the error of each run that failed, by folder.
      lock: see `alone`.
      verbose: prints what the runs print.

    Returns:
      0, or the status to end with where a signal stopped a run.
    """
    terminal.say(progress.estimate(runs))
    if not (verbose or all(run.is_done for run in runs)):
        terminal.say("what each prints is in FOLDER.log; with --verbose also here")
    for number, run in enumerate(runs, 1):
        if run.is_done:
            continue
        if failed := [folder for folder in run.needs if folder in errors]:
            errors[run.folder] = f"not run: {failed[0]} failed"
            continue
        begin = f"run {number} of {len(runs)}: {run.folder}"
        with _Line(begin, verbose=verbose) as line:
            status, error = _run(run, lock, line.show)
            if status in _STOPPED:
                return _STOPPED[status]
            if error:
                errors[run.folder] = error
                line.said = f"failed: {error}"
            else:
                line.said = progress.outcome(run, runs)
    return 0


class _Line:
    """The line of a run: begun as it starts, ended as it ends; in a terminal it shows
    the last line of the log meanwhile.

    Args:
      verbose: all that the run prints stands between the two.

    Attributes:
      said: the end of the line.
    """

    def __init__(self, text: str, *, verbose: bool):
        self._text, self._verbose, self._last = printable(text), verbose, b"\n"
        self.said = "stopped"
        self._live = sys.stderr.isatty() and not verbose
        self._put(self._text + "\n" * verbose)

    def show(self, printed: bytes) -> None:
        """Takes what the run has printed."""
        if self._verbose:
            self._last = printed[-1:] or self._last
            sys.stderr.buffer.write(printed)
            sys.stderr.flush()
        elif self._live and (
            lines := printed.decode(errors="replace").split("\n")[:-1]
        ):
            room = terminal.width() - 1
            self._put(f"\r{f'{self._text}: {printable(lines[-1])}'[:room]}\x1b[K")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        begin = f": {printable(self.said)}"
        if self._verbose:
            # A full disk may have cut the log off within a line.
            begin = "\n" * (self._last != b"\n") + self._text + begin
        elif self._live:
            begin = f"\r\x1b[K{self._text}{begin}"
        self._put(f"{begin}\n")

    def _put(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def command(run: Run) -> list[str]:
    """What is run; its steps are missing until its budget is known."""
    if run.program:
        output = f"--output={run.folder / run.file}"
        return [*run.program, *run.arguments, output]
    steps: tuple[str, ...] = ()
    if run.budget.exists():
        steps = (f"--config.train.num_steps={budget.read(run.budget).steps}",)
    return [*MAIN, *run.arguments, *steps, f"--workdir={run.folder}"]


def _run(run: Run, lock: int, show: Callable[[bytes], object]) -> tuple[int, str]:
    """Runs it to its end; returns its status, and its error if it failed."""
    failed, log = run.beside(".failed.json"), run.beside(".log")
    failed.unlink(missing_ok=True)
    logged = log.stat().st_size if log.exists() else 0
    start, status = time.monotonic(), 0
    if run.file:  # its program makes no folder
        make_folder(run.folder)
    if run.words and not run.budget.exists():
        first = [*BUDGET, *run.arguments, f"--words={run.words}"]
        status = running.wait([*first, f"--output={run.budget}"], log, [lock], show)
        start = time.monotonic()
    if not status:
        status = running.wait(command(run), log, [lock], show)
    seconds = time.monotonic() - start
    text = log.read_bytes()[logged:]
    if status in _STOPPED:
        return status, ""
    result: dict[str, Any] = {"command": command(run), "seconds": seconds}
    if status == 0:
        devices = _DEVICES.search(text)
        result["devices"] = devices[1].decode() if devices else ""
        result["baseline"] = _baseline(text.decode(errors="replace"))
        kept.write(run.result, result)
        return 0, ""
    error = _last_error(text.decode(errors="replace"), status)
    kept.write(failed, {**result, "status": status, "error": error})
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
