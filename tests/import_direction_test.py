"""Imports in bert_jax run downwards only, and no file outgrows its room."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# From top to bottom: a room imports those below its line. A file at the top of
# bert_jax/ is a mode, or public, and counts as a room.
LINES = (
    ("in_python",),
    ("main",),
    ("train", "predict", "evaluate", "describe", "pretrained", "serving"),
    ("answering",),
    ("extract", "attentions", "budget"),
    ("training",),
    ("convert", "tasks"),
    ("data", "workdir"),
    ("tokenization",),
    ("models",),
    ("config", "runtime", "scores"),
    ("family",),
    ("types", "registry"),
    ("errors",),
)
LINE = {room: line for line, rooms in enumerate(LINES) for room in rooms}

# Of these rooms each file imports those below its line only.
RANKED = {
    "training": (
        ("session", "exporting"),
        ("report",),
        ("run_setup",),
        ("evaluator", "compilation"),
        ("seeds", "setup", "inference", "state_shardings"),
        ("run_config", "history", "due", "memory", "sharding"),
        ("lamb", "muon", "stable_adamw"),
        ("optimizer", "step", "from_weights"),
        ("frozen",),
        ("anomaly", "rates"),
    ),
    "runtime": (
        ("failures",),
        ("processes", "heartbeat"),
        ("cluster",),
        ("untrusted", "compilation_cache", "hub"),
        ("storage", "hub_exchange"),
        ("clock", "environment", "signals", "temporary", "terminal"),
    ),
}
RANK = {
    f"{room}.{file}": rank
    for room, ranks in RANKED.items()
    for rank, files in enumerate(ranks)
    for file in files
}

# Rooms that see less of bert_jax than their line would allow.
SEES = {
    "data": (
        *("data", "tokenization", "config.phases", "runtime", "errors", "family"),
        "registry",
    ),
    "scores": ("scores", "errors"),
    "types": (),
    "errors": (),
}
# Libraries that only one file knows.
ONLY = {
    "apache_beam": "data.beam",
    "orbax": "workdir.checkpoint",
    "tensorboardX": "workdir.metrics",
    "wandb": "workdir.trackers",
    "mlflow": "workdir.trackers",
}
WITHOUT_JAX = ("data", "scores", "config", "tokenization")
JAX = ("jax", "jaxlib", "flax", "optax", "orbax", "tensorflow")
MAX_LINES = 320


def imported(module: str, source: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import of `module`, wherever it stands.

    `from a import b` is a.b where that is one of `modules`, else a.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            # A package's own name ends in ".__init__" here, so its dot is one as well.
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield node.lineno, name if name in modules else base


def violations(files: Mapping[str, str]) -> list[str]:
    """What is wrong in `files`: path from the repository's root -> source."""
    names = {path: path.removesuffix(".py").replace("/", ".") for path in files}
    modules = {name.removesuffix(".__init__") for name in names.values()}
    found = []
    for path, source in files.items():
        file = names[path].removeprefix("bert_jax.")
        room = file.split(".")[0]
        if path.endswith("/utils.py"):
            found.append(f"{path}: utils.py is no room")
        if len(source.splitlines()) > MAX_LINES:
            found.append(f"{path}: more than {MAX_LINES} lines")
        inner = "." in file and not file.endswith("__init__")
        known = _inner(file) in RANK if room in RANKED and inner else room in LINE
        if not known and room != "__init__":
            found.append(f"{path}: {file} is in no line")
            continue
        for line, name in imported(names[path], source, modules):
            if not allowed(file, name):
                found.append(f"{path}:{line}: imports {name}")
    return found


def allowed(file: str, name: str) -> bool:
    """Whether a file ("training.step"; "__init__" of bert_jax) may import `name`."""
    library, _, inside = name.partition(".")
    room = file.split(".")[0]
    if library in ("configs", "experiments", "families"):
        return False
    if library != "bert_jax":
        if room in WITHOUT_JAX and library in JAX:
            return False
        return ONLY.get(library, file) == file
    target = inside.split(".")[0]
    if room == "__init__":  # what users import: it trains by what is above the loop
        below = LINE.get(target, -1) >= LINE["pretrained"] and target != "train"
        return below or target == "in_python"
    if target not in LINE:
        return False
    if target == room and room in RANKED:
        # The name of a module, or of something in it.
        own, its = _inner(inside), _inner(file)
        return file.endswith("__init__") or its == own or RANK.get(own, -1) > RANK[its]
    if room in SEES:
        return any(f"{inside}.".startswith(f"{seen}.") for seen in SEES[room])
    return target == room or LINE[target] > LINE[room]


def _inner(name: str) -> str:
    """The room of a name, and the file or folder in it."""
    return ".".join(name.split(".")[:2])


def test_the_repository():
    files = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "bert_jax").rglob("*.py"))
    }
    assert "bert_jax/errors.py" in files
    assert violations(files) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bert_jax/main.py", "from bert_jax import train, evaluate, errors"),
        (
            "bert_jax/train.py",
            "from bert_jax.training.session import Session\nimport jax",
        ),
        ("bert_jax/training/step.py", "import bert_jax.models.heads\nimport optax"),
        (
            "bert_jax/tasks/glue/task.py",
            "from . import squad\nfrom ..data import pairs",
        ),
        ("bert_jax/workdir/checkpoint.py", "import orbax.checkpoint as ocp"),
        ("bert_jax/workdir/metrics.py", "from tensorboardX import SummaryWriter"),
        ("bert_jax/data/masking.py", "import tensorflow_datasets\nimport jaxtyping"),
        ("bert_jax/convert/google.py", "from bert_jax.models.config import BertConfig"),
        ("bert_jax/convert/google.py", "from bert_jax.models import config"),
        ("bert_jax/models/__init__.py", "from .config import BertConfig"),
        ("bert_jax/__init__.py", "def load():\n    from bert_jax import pretrained"),
    ],
)
def test_good_examples(path, source):
    assert violations({**EXAMPLE, path: source}) == []


EXAMPLE = dict.fromkeys(
    [
        *(f"bert_jax/{name}.py" for name in ("__init__", "main", "train", "evaluate")),
        *(f"bert_jax/{name}.py" for name in ("errors", "pretrained", "tokenization")),
        *(f"bert_jax/training/{name}.py" for name in ("session", "step", "optimizer")),
        *(f"bert_jax/workdir/{name}.py" for name in ("checkpoint", "metrics")),
        *(f"bert_jax/models/{name}.py" for name in ("__init__", "config", "heads")),
        *(f"bert_jax/data/{name}.py" for name in ("__init__", "pairs")),
        *(f"bert_jax/tasks/{name}.py" for name in ("__init__", "squad")),
    ],
    "",
)


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("bert_jax/train.py", "from bert_jax import main", "bert_jax.main"),
        ("bert_jax/evaluate.py", "import os, bert_jax.train", "bert_jax.train"),
        (
            "bert_jax/training/step.py",
            "from bert_jax.train import run",
            "bert_jax.train",
        ),
        (
            "bert_jax/training/step.py",
            "from bert_jax.training import session",
            "bert_jax.training.session",
        ),
        (
            "bert_jax/runtime/storage.py",
            "from bert_jax.training import step",
            "bert_jax.training.step",
        ),
        (
            "bert_jax/workdir/checkpoint.py",
            "from bert_jax.training.step import TrainState",
            "bert_jax.training.step",
        ),
        (
            "bert_jax/models/heads.py",
            "from ..tasks import squad",
            "bert_jax.tasks.squad",
        ),
        ("bert_jax/models/__init__.py", "from ..tasks import a", "bert_jax.tasks"),
        (
            "bert_jax/models/heads.py",
            "from ..training import optimizer",
            "bert_jax.training.optimizer",
        ),
        ("bert_jax/errors.py", "import bert_jax.tokenization", "bert_jax.tokenization"),
        ("bert_jax/data/pairs.py", "def f():\n  import jax.numpy", "jax.numpy"),
        ("bert_jax/data/pairs.py", "from flax import linen", "flax"),
        ("bert_jax/tokenization.py", "import tensorflow as tf", "tensorflow"),
        (
            "bert_jax/data/pairs.py",
            "from ..models import config",
            "bert_jax.models.config",
        ),
        (
            "bert_jax/convert/google.py",
            "import bert_jax.training.step",
            "bert_jax.training.step",
        ),
        ("bert_jax/train.py", "import orbax.checkpoint", "orbax.checkpoint"),
        ("bert_jax/train.py", "from tensorboardX import x", "tensorboardX"),
        ("bert_jax/main.py", "from configs import common", "configs"),
        ("bert_jax/main.py", "import experiments.paper.glue", "experiments.paper.glue"),
        ("bert_jax/main.py", "from families.elmo import model", "families.elmo"),
        ("bert_jax/train.py", "import families", "families"),
        (
            "bert_jax/tokenization.py",
            "def f():\n  from families import gpt",
            "families",
        ),
        ("bert_jax/train.py", "from bert_jax import load", "bert_jax"),
        ("bert_jax/__init__.py", "from bert_jax import train", "bert_jax.train"),
    ],
)
def test_bad_imports_are_found(path, source, name):
    (found,) = violations({**EXAMPLE, path: source})
    line = 2 if source.startswith("def") else 1
    assert found == f"{path}:{line}: imports {name}"


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        ("bert_jax/data/utils.py", "", "utils.py is no room"),
        ("bert_jax/training/step.py", "x = 1\n" * 321, "more than 320 lines"),
        ("bert_jax/extra.py", "", "extra is in no line"),
        ("bert_jax/training/extra.py", "", "training.extra is in no line"),
    ],
)
def test_bad_files_are_found(path, source, message):
    assert violations({**EXAMPLE, path: source}) == [f"{path}: {message}"]


def test_a_family_reads_alone():
    for path in sorted((ROOT / "families").rglob("*.py")):
        own = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        room = ".".join(own.split(".")[:2])
        for line, name in imported(own, path.read_text(), set()):
            library = name.split(".")[0]
            ours = library in ("bert_jax", "configs", "experiments", "families")
            fits = library == "bert_jax" or f"{name}.".startswith(f"{room}.")
            assert fits or not ours, f"{path}:{line}: imports {name}"


def test_320_lines_are_not_too_many():
    assert violations({"bert_jax/training/step.py": "x = 1\n" * 320}) == []


@pytest.mark.parametrize(
    "folder", ["configs", "experiments", "families", "launch", "tests"]
)
def test_no_other_file_is_too_long(folder):
    paths = (ROOT / folder).rglob("*.py")
    long = [path for path in paths if len(path.read_text().splitlines()) > MAX_LINES]
    assert not long
