"""A ratchet: what each mode of a plain run loads of bert_jax, and how much at most.

A run loads what its config names. Who adds to the core raises a figure here, and says
in the same commit why it is no room beside it; who takes out lowers it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import tasks
from bert_jax.tasks.glue import data as glue
from tests.forked import ROOT
from tests.runs import anew

# Lines of Python that configs/tiny.py loads.
MOST_LINES = {
    "prepare": 11_170,
    "train": 14_260,
    "evaluate": 12_010,
    "describe": 9_100,
    "predict": 8_720,
    "export": 8_100,
    "extract": 9_210,
}
# What no plain run needs, in whatever mode; a name stands for all below it.
ROOMS = (
    "families",
    *("bert_jax.models.kernels", "bert_jax.models.lstm", "bert_jax.training.muon"),
    *("bert_jax.data.cleaning", "bert_jax.data.beam", "bert_jax.data.packing"),
    *("bert_jax.data.mix", "bert_jax.data.sources"),
    *("bert_jax.tasks.glue", "bert_jax.tasks.squad", "bert_jax.tasks.swag"),
    *("bert_jax.tasks.ner", "bert_jax.tasks.text", "bert_jax.attentions"),
    *("bert_jax.budget", "bert_jax.workdir.trackers", "bert_jax.serving"),
    *("bert_jax.convert", "bert_jax.training.from_weights"),
)
# What a mode loads of these all the same.
NEEDS = {
    "prepare": (),
    "train": ("bert_jax.training.muon",),
    "evaluate": ("bert_jax.training.muon",),
    "describe": ("bert_jax.training.muon",),
    "predict": (),
    "export": ("bert_jax.convert",),
    "extract": (),
}
PROGRAM = """
import json, sys
from bert_jax import main
status = main.main(sys.argv[2:])
loaded = {
    name: module.__file__ for name, module in sys.modules.items()
    if name.partition(".")[0] in ("bert_jax", "families")
}
open(sys.argv[1], "w").write(json.dumps(loaded))
sys.exit(status)
"""


def needless(loaded, mode):
    """Those of the loaded modules that a mode does without."""
    return sorted(
        module
        for module in loaded
        for room in ROOMS
        if f"{module}.".startswith((f"{room}.", f"{room}_")) and room not in NEEDS[mode]
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Runs a mode of configs/tiny.py; gives the files of the modules it loaded."""
    folder = tmp_path_factory.mktemp("tiny")
    fields = {
        "corpus.sources": (f"text:{ROOT}/docs/*.md",),
        "corpus.dev_fraction": 0.1,
        "corpus.data_dir": str(folder / "data"),
        "tokenizer.vocab_size": 1000,
        "train.num_steps": 1,
        "train.batch_size": 2,
    }
    given = [f"--config.{name}={value}" for name, value in fields.items()]

    def run(mode):
        line = [f"--mode={mode}", f"--workdir={folder / 'run'}"]
        if mode in ("prepare", "train"):
            line += [f"--config={ROOT / 'configs' / 'tiny.py'}", *given]
        if mode == "export":
            line += [f"--output={folder / 'exported'}"]
        if mode == "extract":  # the last four layers, by default
            line += ["--config.predict.layers=(-1,)"]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder / "loaded.json", *line],
            cwd=ROOT,
            env=anew(),
            input='{"text": "the [MASK] fox"}',
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        return json.loads((folder / "loaded.json").read_text())

    run("train")
    return run


@pytest.mark.parametrize("mode", MOST_LINES)
def test_a_plain_run_loads_the_core_alone(mode, tiny):
    loaded = tiny(mode)
    assert needless(loaded, mode) == []
    lines = sum(len(Path(path).read_text().splitlines()) for path in loaded.values())
    assert MOST_LINES[mode] - 100 < lines <= MOST_LINES[mode]


def test_needless_modules_are_found():
    loaded = [
        "bert_jax.tasks.squad",
        "families.elmo.word_tasks",
        "bert_jax.tasks.task",
    ]
    assert needless(loaded, "train") == loaded[:2]
    muon = ["bert_jax.training.muon"]
    assert (needless(muon, "train"), needless(muon, "predict")) == ([], muon)


def test_glue_is_named_without_its_data():
    assert set(tasks.GLUE.split()) == set(glue.TASKS)
