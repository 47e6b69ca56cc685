"""A slice of the campaign on the commands that read models."""

import subprocess
from pathlib import Path

import pytest

from bert_jax.workdir import folder as workdir
from experiments.lib import execution
from experiments.paper import runs
from tests.forked import ROOT
from tests.system import experiments_homes as homes
from tests.system import experiments_models as models
from tests.system.experiments_faults import report
from tests.system.experiments_homes import steady

SEED = 3
SLICE = [12, 29, 39, 140]  # of triviaqa


def test_a_slice():
    """Of commands that read no model, which are quick."""
    found = models.run(SLICE, SEED, commands=["triviaqa"])
    kinds = {kind.rpartition(", ")[2] for _, kind, _, _ in found}
    assert kinds == {"damaged", "arguments", "killed"}
    said = report(found, SEED, "experiments_models")
    assert said.endswith("\n\n0 failed"), said


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ("error: in/model/config.json: not JSON", True),
        ("error: in/model: has no weights", True),
        ("error: something is wrong", False),
        ("error: in/model: wrong\nmore", False),
    ],
)
def test_a_line_names_the_file(told, named):
    assert models.named(Path("in/model/config.json"), told) == named


def test_what_differs_from_start_to_start_is_left_out():
    found = {"a": [{"seconds": 1.5, "f1": 0.5}], "word2vec, other words": 3}
    assert steady(found) == {"a": [{"f1": 0.5}]}


def test_every_program_that_a_command_starts_has_a_stand_in(monkeypatch):
    """Where none is put, a campaign would start the real program."""
    homes.stand_in(monkeypatch.setattr)
    plan = [execution.BUDGET, execution.MAIN, runs.FEATURES, runs.TRIVIAQA]
    for program in (*plan, runs.ENSEMBLE):
        assert program[: len(homes.PROGRAM)] == homes.PROGRAM


def test_a_stand_in_writes_the_config_of_its_arguments(tmp_path):
    given = ["--config=configs/finetune/squad.py:size=tiny", "--config.train.seeds=2"]
    given += ["--config.seed=3", f"--workdir={tmp_path}"]
    subprocess.run([*homes.PROGRAM, *given], check=True, cwd=ROOT)
    for folder, seeds in ((tmp_path, 2), (tmp_path / "seed_4", 1)):
        config = workdir.recorded(folder)
        assert config.task.name == "squad" and config.model.hidden_size == 128
        assert config.train.seeds == seeds
    assert config.seed == 4
