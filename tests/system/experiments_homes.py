"""How the commands of experiments_commands.py are run, in homes of their own."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forked import ROOT, Forked, Server, surroundings
from tests.system.experiments_commands import COMMANDS, write_data
from tests.system.micro_runs import Stages

PROGRAM = (sys.executable, "-I", str(ROOT / "tests/system/experiments_program.py"))
SECONDS = 240.0  # of a command, on a machine that others use too
# With LIMIT no file may have more bytes, as on a full disk; with READ_ONLY root, too,
# may write only where a folder's mode says so (linux/capability.h, CAP_DAC_OVERRIDE).
_START = """
import ctypes, os, resource, sys
from tests.system import experiments_homes as homes
main = homes.main_of(sys.argv[1])
if limit := os.environ.get("LIMIT"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
if "READ_ONLY" in os.environ:
    head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capget(head, sets)
    sets[0] &= ~0b10
    ctypes.CDLL(None).capset(head, sets)
sys.exit(main(sys.argv[2:]))
"""
_IMPORTED = (
    *(
        "experiments.paper.features",
        "experiments.insight.probes",
        "experiments.insight.senses",
    ),
    *("experiments.claims.learning_curves", "experiments.paper.squad_ensemble"),
    *("experiments.paper.triviaqa", "experiments.paper.__main__"),
    *("experiments.english.table", "experiments.english.by_kind"),
    *("experiments.claims.grid_spread", "experiments.insight.attention_plot"),
    *("sklearn.linear_model", "gensim.models", "matplotlib.figure"),
)
# What differs from start to start.
_VOLATILE = ("seconds", "date", "about", "command", "load", "time", "runs_took")


def stand_in(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on PROGRAM is started for whatever a command starts.

    Raises:
      AttributeError: a program is named elsewhere, so that it would run itself.
    """
    from experiments.lib import execution
    from experiments.paper import runs

    programs = {"BUDGET": (execution, "budget"), "MAIN": (execution, "")}
    programs |= {"FEATURES": (runs, "features"), "TRIVIAQA": (runs, "written")}
    programs |= {"VECTORS": (runs, "vectors"), "ENSEMBLE": (runs, "ensemble")}
    for name, (module, kind) in programs.items():
        getattr(module, name)
        put(module, name, (*PROGRAM, f"--kind={kind}") if kind else PROGRAM)


def main_of(name: str) -> Callable[[Sequence[str]], int]:
    """A command's main, which starts PROGRAM."""
    import importlib

    stand_in()
    return importlib.import_module(f"experiments.{COMMANDS[name].module}").main


class Homes:
    """Starts commands, and has a finished home of each."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bert_jax.homes."))
        environment = surroundings(self._folder / "compiled")
        self._server = Server({**environment, "ALSO_IMPORT": " ".join(_IMPORTED)})
        (self._folder / "compiled").mkdir()
        self._stages = Stages(self._server)
        self._locks = {name: threading.Lock() for name in COMMANDS}
        self.seconds: dict[str, float] = {}  # that the finished commands took

    def fresh(self, name: str, target: Path) -> None:
        """Makes a home of a command, with inputs alone."""
        write_data(target)
        (target / "out").mkdir()
        given = " ".join(COMMANDS[name].arguments)
        if "in/model" in given:
            model = self._stages.folder("pretraining", "model") / "in" / "model"
            shutil.copytree(model, target / "in" / "model")
        if "--init_from=run" in given:
            made = self._stages.folder("pretraining", "run")
            shutil.copytree(made, target, dirs_exist_ok=True)
        if "in/run0" in given:
            for run in ("run0", "run1"):
                made = self._stages.folder("squad", "run") / "run"
                shutil.copytree(made, target / "in" / run)
        then = time.time() - 3600  # digests of younger files are not kept
        for path in target.rglob("*"):
            os.utime(path, (then, then))

    def finished(self, name: str) -> Path:
        """The home of an undisturbed command; not to be changed."""
        made = self._folder / name.replace(" ", "_")
        with self._locks[name]:
            if name not in self.seconds:
                self.fresh(name, made)
                started = time.monotonic()
                status, _, err = self.run(name, made)
                if status:
                    raise RuntimeError(f"{name} ended with {status}:\n{err}")
                self.seconds[name] = time.monotonic() - started
        return made

    def start(
        self, name: str, home: Path, arguments: Sequence[str] | None = None, **env: str
    ) -> Forked:
        """A command in a home."""
        given = COMMANDS[name].arguments if arguments is None else arguments
        environment = self._server.environment | {"PROGRAM_PAUSE": "0.02"} | env
        argv = ["-c", _START, name, *given]
        return self._server.start_with_pipes(argv, home, environment)

    def run(
        self, name: str, home: Path, arguments: Sequence[str] | None = None, **env: str
    ) -> tuple[int, str, str]:
        """Status and both outputs; a command that hangs gets SIGKILL."""
        status, out, err = self.end(self.start(name, home, arguments, **env))
        if status == 0 and not COMMANDS[name].result:
            (home / "printed").write_text(out)
        return status, out, err

    @staticmethod
    def end(process: Forked) -> tuple[int, str, str]:
        """As `run`, of a command that was started."""
        try:
            out, err = process.communicate(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return -signal.SIGKILL, "", f"hangs ({SECONDS:.0f} s)"
        assert process.returncode is not None
        return process.returncode, out, err

    def close(self) -> None:
        self._server.close()
        self._stages.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def result(name: str, home: Path) -> Any:
    """What a command has found, without what differs from start to start; None before
    its end. Of a file that is no JSON, its digest."""
    if not (pattern := COMMANDS[name].result):
        printed = home / "printed"
        return printed.read_text() if printed.exists() else None
    paths = sorted((home / "out").glob(pattern))
    if not paths or paths[0].suffix == ".json":
        return steady(json.loads(paths[0].read_text())) if paths else None
    return hashlib.sha256(paths[0].read_bytes()).hexdigest()


def steady(value: Any) -> Any:
    """Without times, and without word2vec's numbers, which no two trainings share."""
    if isinstance(value, Mapping):
        kept = {k: steady(v) for k, v in value.items() if k not in _VOLATILE}
        return {k: v for k, v in kept.items() if not k.startswith("word2vec")}
    return [steady(each) for each in value] if isinstance(value, list) else value


def names(home: Path) -> set[str]:
    """The files in a home's `out/`, without the cache of digests: it may be missing."""
    return {
        os.path.relpath(path, home / "out")
        for path in (home / "out").rglob("*")
        if path.is_file() and path.name != ".digests.json"
    }
