"""Trains the runs of a command one after the other, and resumes where it stopped.

A run that has ended well has `result.json` in its folder. `FOLDER.log` next to it has
the run's output.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from bert_jax.commands import report
from bert_jax.config import command_line as flags
from bert_jax.config import configuration, files
from bert_jax.errors import UserError, escape_controls
from bert_jax.runtime import terminal
from bert_jax.runtime.storage import write_atomically
from bert_jax.workdir import metrics

ROOT = Path(__file__).resolve().parents[2]
MAIN = (sys.executable, "-m", "bert_jax.main")
# SIGHUP, Ctrl-C and SIGTERM: the run has saved. A negative status means that the signal
# came as Python started or ended.
_STOPPED = {**{n: n for n in (129, 130, 143)}, -1: 129, -2: 130, -15: 143}


class Run(NamedTuple):
    """A program to run.

    Attributes:
      kind: "pre-training" or the task.
      folder: Work directory of the run.
      arguments: Arguments of its program, without the folder.
      needs: Folders of the runs that it starts from.
      program: Command of the program. Empty means bert_jax.main, which takes --workdir.
        Others take --output.
    """

    kind: str
    folder: Path
    arguments: tuple[str, ...]
    needs: tuple[Path, ...] = ()
    program: tuple[str, ...] = ()

    @property
    def result(self) -> Path:
        """The file with its command and seconds, written at its end."""
        return self.folder / "result.json"

    @property
    def is_done(self) -> bool:
        return self.result.exists()

    @property
    def printed(self) -> Path:
        """The file with all that it printed, earlier starts included."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def command(self) -> list[str]:
        if self.program:
            return [*self.program, *self.arguments, f"--output={self.folder}"]
        return [*MAIN, *self.arguments, f"--workdir={self.folder}"]

    def seeds(self) -> dict[int, Path]:
        """Returns the work directory of each seed. A run of one seed has its own
        folder, as seed 0 unless the folder is named after another."""
        folders = sorted(self.folder.glob("seed_*"), key=lambda x: int(x.name[5:]))
        if not folders and not self.folder.name.startswith("seed_"):
            return {0: self.folder}
        return {int(x.name[5:]): x for x in folders or [self.folder]}

    def config(self) -> dict[str, Any]:
        return read_json(self.folder / "config.json", self._again)

    def log(
        self, split: str = "dev", needs: Collection[str] = (), *, may_lack: bool = False
    ) -> dict[int, list[dict[str, float]]]:
        """Reads the lines of a split in metrics.jsonl by seed, of a run that has ended.

        Args:
          needs: Scores that every line must have.
          may_lack: Whether a split without lines is allowed.

        Raises:
          UserError: A seed, the end of a log or a score is missing.
        """
        train, folders, found = self.config()["train"], self.seeds(), {}
        if len(folders) != train["seeds"]:
            count = f"has {len(folders)} of {train['seeds']} seeds"
            raise UserError(f"{self.folder}: damaged: {count}; {self._again}")
        for seed, folder in folders.items():
            path, dev = folder / "metrics.jsonl", metrics.read_metrics(folder, "dev")
            # Dev's last line is written after those of training and other splits.
            end = 0 if train["early_stop"] else train["num_steps"]
            if not dev or dev[-1]["step"] < end:
                raise UserError(f"{path}: cut before the run's end; {self._again}")
            lines = found[seed] = metrics.read_metrics(folder, split)
            if not (lines or may_lack) or any(set(needs) - x.keys() for x in lines):
                raise UserError(
                    f"{path}: damaged: it has no {' and '.join(needs)} on {split}; "
                    f"{self._again}"
                )
        return found

    @property
    def _again(self) -> str:
        if not self.arguments:  # somebody's weights
            return "restore it"
        return f"delete {self.folder}, and the same command trains it again"


def digest(*texts: str | bytes) -> str:
    """Returns a short hash for folder names."""
    encoded = [x.encode() if isinstance(x, str) else x for x in texts]
    return hashlib.sha256(b"\n".join(encoded)).hexdigest()[:8]


def identify(spec: str, fields: Sequence[str]) -> str:
    """Returns what decides the runs of a config file, which may change: its values and,
    if one of these names code of its own, this code.

    Args:
      fields: `--config.FIELD=VALUE`.

    Raises:
      UserError: The config does not allow a field or value.
    """
    config = configuration.load_config(spec, fields)
    values = json.dumps(config.to_dict(), sort_keys=True)
    if not configuration.names_added_code(config):
        return values
    code = {name: digest(x) for name, x in files.read_code(spec).items()}
    return values + json.dumps(code)


def finish(
    runs: Sequence[Run],
    options: argparse.Namespace | Any,
    written: Callable[[Mapping[Path, str]], str],
    *,
    before: Callable[[], object] = lambda: None,
    partial: bool = False,
) -> int:
    """Runs the unfinished runs, then prints the report. Returns the exit status.

    Args:
      options: Options of `command_line.Parser.add_run_options`.
      written: Function that takes the errors of failed runs, by folder, and returns the
        text to print.
      before: Function that makes the files that the runs read.
      partial: Whether to report even if runs failed or a signal stopped them.

    Raises:
      UserError: The config of a run is wrong, and no run has begun, or another start is
        at work in the folder.
    """
    for run in runs:
        if not run.program:
            check(run.arguments)
    if options.plan:
        rows = [("done" if r.is_done else "", r.kind, str(r.folder)) for r in runs]
        print(terminal.format_table(rows, ("", "kind", "run")))
        return 0
    errors: dict[Path, str] = {}
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(options.output / ".lock", timeout=0):
            before()
            status = _run_all(runs, errors)
            if partial or not (status or errors):
                print(written(errors))
    except filelock.Timeout:
        raise UserError(
            f"--output={options.output}: another start is at work there; wait until it "
            "ends, or name another folder"
        ) from None
    if status:
        terminal.print_line("stopped; the same command goes on there")
    elif errors:
        folder, error = next(iter(errors.items()))
        count = f"{len(errors)} of {len(runs)} runs failed, the first {folder}"
        again = "the same command tries them again"
        terminal.print_line(f"error: {escape_controls(f'{count}: {error}')}; {again}")
        status = 2
    return status


def check(arguments: Sequence[str]) -> None:
    """Checks the config of a bert_jax.main run, as far as its data is not needed.

    Raises:
      UserError: The config is wrong.
    """
    from bert_jax.training import optimizer  # slow

    line = flags.parse_flags(arguments)
    config = configuration.load_config(line.config, line.overrides)
    if config.train.num_steps:
        optimizer.learning_rate_schedule(config)


def _run_all(runs: Sequence[Run], errors: dict[Path, str]) -> int:
    """Returns 0, or the status to end with where a signal stopped a run."""
    for number, run in enumerate(runs, 1):
        if run.is_done:
            continue
        if failed := [folder for folder in run.needs if folder in errors]:
            errors[run.folder] = f"not run: {failed[0]} failed"
            continue
        name = f"run {number} of {len(runs)}"
        terminal.print_line(f"{name}: {escape_controls(str(run.printed))}")
        start = time.monotonic()
        status = wait(run.command, run.printed)
        seconds = time.monotonic() - start
        if status in _STOPPED:
            return _STOPPED[status]
        if status:
            errors[run.folder] = _last_error(run.printed, status)
            terminal.print_line(f"{name} failed: {escape_controls(errors[run.folder])}")
        else:
            write_json(run.result, {"command": run.command, "seconds": seconds})
            terminal.print_line(f"{name}: done in {report.format_duration(seconds)}")
    return 0


def wait(command: Sequence[str], log: Path) -> int:
    """Runs a program to its end and passes SIGTERM on. Returns its exit status.

    Args:
      log: File to which the program's output is appended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Without a buffer, so that an error's line comes after what was printed before it.
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # it was sent to the program too, which saves
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


def _last_error(printed: Path, status: int) -> str:
    """Returns a run's error: its last line, with the status if that is no error."""
    text = printed.read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if lines[-1].startswith("error: "):
        return lines[-1].removeprefix("error: ")
    return f"{lines[-1]} (ended with status {status})".strip()


def write_json(path: Path, value: Any) -> None:
    """Writes a file completely or not at all, after making its folders."""
    write_atomically(path, json.dumps(value, indent=1) + "\n")


def read_json(
    path: Path, hint: str = "delete it, and the same command makes it again"
) -> dict[str, Any]:
    """Reads an object.

    Raises:
      UserError: The file is missing or is not a JSON object.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); {hint}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: not a JSON object; {hint}")
    return found
