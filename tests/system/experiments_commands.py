"""The commands of experiments/ that read models: their inputs, and how they are run.

A home is a folder with `in/` and, of a finished command, `out/`; all names in it are
relative, so that a copy of it works as well, and its files have the same names.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.forked import ROOT, Forked, Server, surroundings
from tests.system.micro_data import KINDS
from tests.system.micro_runs import Stages

PROGRAM = (sys.executable, "-I", str(ROOT / "tests/system/experiments_program.py"))
SECONDS = 240.0  # of a command, on a machine that others use too
# With LIMIT no file may have more bytes, as on a full disk; with READ_ONLY root, too,
# may write only where a folder's mode says so (linux/capability.h, CAP_DAC_OVERRIDE).
_START = """
import ctypes, os, resource, sys
from tests.system import experiments_commands as commands
main = commands.main_of(sys.argv[1])
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
    *(
        "experiments.paper.triviaqa",
        "experiments.paper.__main__",
    ),
    *("sklearn.linear_model", "gensim.models", "matplotlib.figure"),
)
# What differs from start to start.
_VOLATILE = ("seconds", "date", "about", "command", "load", "time", "runs_took")


class Command(NamedTuple):
    """A command and what it reads.

    Attributes:
      module: of experiments/.
      arguments: in a home.
      reads: patterns of files in a home, besides `out/`.
      result: the file in `out/` that it ends with.
    """

    module: str
    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    result: str


_PAPER = ("--size=tiny", "--data=in/data", "--seeds=2", "--output=out")
_WEIGHTS = "--weights=in/model"
_NER = "in/data/NER"
COMMANDS = {
    "features": Command(
        "paper.features",
        (
            *("--init_from=in/model", f"--train={_NER}/train.conll", "--output=out"),
            *(f"--dev={_NER}/dev.conll", f"--test={_NER}/test.conll", "--size=4"),
            *("--seeds=2", "--choices=last,sum_all", "--config.train.num_epochs=2"),
            *("--config.train.batch_size=4", "--config.evaluate.batch_size=4"),
        ),
        ("in/model/*", f"{_NER}/*"),
        "results.json",
    ),
    "probes": Command(
        "insight.probes",
        (
            *("--init_from=in/model", f"--train={_NER}/train.conll", "--output=out"),
            *(f"--dev={_NER}/dev.conll", "--sst2=in/data/SST-2", "--parts=2"),
            *("--words=1000", "--sentences=10", "--plot"),
        ),
        ("in/model/*", f"{_NER}/[td][re]*", "in/data/SST-2/[td][re]*"),
        "results.json",
    ),
    "senses": Command(
        "insight.senses",
        (
            *("--init_from=in/model", "--word=cats", "--sentences=in/senses.tsv"),
            *("--output=out", "--text=sentences:in/corpus.txt", "--plot"),
        ),
        ("in/model/*", "in/senses.tsv", "in/corpus.txt"),
        "cats.json",
    ),
    "learning_curves": Command(
        "claims.learning_curves",
        (
            *("--data=in/reviews", "--init_from=in/model", "--examples=4,8"),
            *("--draws=1", "--seeds=2", "--size=tiny", "--epochs=2", "--output=out"),
            "--config.task.max_seq_length=16",
        ),
        ("in/model/*", "in/reviews/*"),
        "results.json",
    ),
    "squad_ensemble": Command(
        "paper.squad_ensemble",
        ("--workdirs=in/run0,in/run1", "--output=out"),
        ("in/run0/*", "in/run1/*.json", "in/dev.json"),
        "scores.json",
    ),
    "triviaqa": Command(
        "paper.triviaqa",
        (
            "--qa=in/data/TriviaQA/qa/wikipedia-train.json",
            *("--evidence=in/data/TriviaQA/evidence", "--output=out/train.json"),
        ),
        ("in/data/TriviaQA/*/*.json", "in/data/TriviaQA/evidence/*/*"),
        "train.json",
    ),
    "paper table1": Command(
        "paper.__main__",
        (
            *("table1", *_PAPER, "--systems=bert,gpt", "--tasks=rte", "--words=1000"),
            "--corpus=sentences:in/corpus.txt",
        ),
        ("in/data/RTE/*", "in/corpus.txt"),
        "table1-bert-gpt-tiny/results.json",
    ),
    "paper table2": Command(
        "paper.__main__",
        ("table2", *_PAPER, _WEIGHTS),
        ("in/model/*.json", "in/data/SQuAD/*"),
        "table2-tiny-*/results.json",
    ),
    "paper table7": Command(
        "paper.__main__",
        ("table7", *_PAPER, _WEIGHTS),
        ("in/model/*.json", f"{_NER}/*"),
        "table7-tiny-*/results.json",
    ),
}


def stand_in(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on PROGRAM is started for whatever a command starts.

    Raises:
      AttributeError: a program is named elsewhere, so that it would run itself.
    """
    from experiments.lib import execution
    from experiments.paper import runs

    programs = {"BUDGET": (execution, "budget"), "MAIN": (execution, "")}
    programs |= {"FEATURES": (runs, "features"), "TRIVIAQA": (runs, "written")}
    programs |= {"ENSEMBLE": (runs, "ensemble")}
    for name, (module, kind) in programs.items():
        getattr(module, name)
        put(module, name, (*PROGRAM, f"--kind={kind}") if kind else PROGRAM)


def main_of(name: str) -> Callable[[Sequence[str]], int]:
    """A command's main, which starts PROGRAM."""
    import importlib

    stand_in()
    return importlib.import_module(f"experiments.{COMMANDS[name].module}").main


def write_data(folder: Path) -> None:
    """The data sets in `in/` of a home."""
    rng = random.Random("experiments")
    squad, rte, sst2 = (KINDS[name](rng).files for name in ("squad", "rte", "sst2"))
    several = [KINDS["ner"](rng).files for _ in range(4)]  # one is few for probes
    files = {f"data/NER/{n}": "\n".join(x[n] for x in several) for n in several[0]}
    files |= {f"data/RTE/{name}": text for name, text in rte.items()}
    files |= {f"data/SST-2/{name}": text for name, text in sst2.items()}
    files |= {f"data/SQuAD/{n[:-5]}-v1.1.json": text for n, text in squad.items()}
    files["dev.json"] = squad["dev.json"]
    files["corpus.txt"] = KINDS["pretraining"](rng).files["corpus.txt"]
    for split, count in (("train", 12), ("test", 8)):
        rows = [
            {"text": f"{('a dog', 'the fox')[n % 2]} {n}", "label": "np"[n % 2]}
            for n in range(count)
        ]
        files[f"reviews/{split}.jsonl"] = "".join(json.dumps(r) + "\n" for r in rows)
    uses = ("a\tthe {}", "a\ta go {} watch", "b\tseven it go {}", "b\tit {} over")
    files["senses.tsv"] = "".join(f"{use.format('cats')}\n" for use in uses)
    page = {"QuestionId": "q1", "Question": "where is it"}
    page["Answer"] = {"NormalizedAliases": ["lazy dog"]}
    page["EntityPages"] = [{"Filename": "Dog.txt"}]
    other = {**page, "QuestionId": "q2", "EntityPages": [{"Filename": "Fox.txt"}]}
    files["data/TriviaQA/qa/wikipedia-train.json"] = json.dumps({"Data": [page, other]})
    evidence = "data/TriviaQA/evidence/wikipedia"
    files[f"{evidence}/Dog.txt"] = "The lazy, lazy dog sleeps."
    files[f"{evidence}/Fox.txt"] = "The quick fox."
    for name, text in files.items():
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


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
        if "in/run0" in given:
            for run in ("run0", "run1"):
                made = self._stages.folder("squad", "run") / "run"
                shutil.copytree(made, target / "in" / run)

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
        return self.end(self.start(name, home, arguments, **env))

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
    its end."""
    paths = sorted((home / "out").glob(COMMANDS[name].result))
    return steady(json.loads(paths[0].read_text())) if paths else None


def steady(value: Any) -> Any:
    """Without times, and without word2vec's numbers, which no two trainings share."""
    if isinstance(value, Mapping):
        kept = {k: steady(v) for k, v in value.items() if k not in _VOLATILE}
        return {k: v for k, v in kept.items() if not k.startswith("word2vec")}
    return [steady(each) for each in value] if isinstance(value, list) else value


def names(home: Path) -> set[str]:
    """The files in a home's `out/`, without those of word2vec's other trainings."""
    return {
        os.path.relpath(path, home / "out")
        for path in (home / "out").rglob("*")
        if path.is_file()
    }
