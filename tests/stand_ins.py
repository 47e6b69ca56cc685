"""Functions that replace the programs that experiments start."""

import contextlib
import io
from collections.abc import Callable, Sequence

import pytest

from bert_jax.commands import runner
from tests.runs import here

# Gets the arguments. Its output is the program's output, and it ends with a status
# as a program does, by sys.exit.
Program = Callable[[Sequence[str]], None]


def options(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the options by name, --workdir=X as {"workdir": "X"}."""
    return dict(argument.lstrip("-").partition("=")[::2] for argument in arguments)


def put(monkeypatch: pytest.MonkeyPatch, **programs: Program) -> None:
    """Makes a command that begins with such a name call its function from now on.

    Other commands are started as usual: a Python process for each run of a grid would
    take most of a test's time.
    """
    start = runner.wait

    def wait(command, log):
        if command[0] not in programs:
            return start(command, log)
        log.parent.mkdir(parents=True, exist_ok=True)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = _status(programs[command[0]], command[1:])
        with log.open("a") as file:
            file.write(said.getvalue())
        return status

    monkeypatch.setattr(runner, "wait", wait)
    if "main" in programs:
        monkeypatch.setattr(runner, "MAIN", ("main",))


def run_here(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Makes bert_jax.main run in this process. Returns the arguments of all its runs,
    a list that grows."""
    started: list[Sequence[str]] = []

    def run(arguments: Sequence[str]) -> None:
        started.append(arguments)
        print(*here(*arguments), sep="")

    put(monkeypatch, main=run)
    return started


def _status(program: Program, arguments: Sequence[str]) -> int:
    try:
        program(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):  # as Python does
            print(end.code)
            return 1
        return end.code or 0
    return 0
