"""The programs of experiments/ answer wrong arguments with one line."""

import importlib

import pytest

PROGRAMS = (
    *("insight.attention_plot", "insight.probes"),
    *("claims.leak", "claims.learning_curves"),
    *("paper.features", "paper.__main__", "paper.budget", "speed.gpu_suite"),
)
MINI = "mini"
PAPER = "table5 --size=tiny --corpus=pydocs --data=DATA"
WRONG = {
    "paper.__main__ table9": "table9: no such table; choose one of table1",
    "paper.__main__ table1 --weights=nowhere": "nowhere: no such folder",
    f"paper.__main__ {PAPER} --config.task.objective=ltr": "sets task.objective it",
    f"paper.features --init_from={MINI} --train=x --dev=x --config.seed=1 "
    "--config.task.bilstm=True": "task.bilstm is set here",
    f"claims.learning_curves --init_from={MINI} --data=x --config.train.seeds=3": (
        "train.seeds is set here"
    ),
    f"insight.probes --init_from={MINI} --train=x": "--train and --dev go together",
    "speed.gpu_suite --output=x --only=nothing": "'nothing' is none of steps",
    "speed.train_step --sizes=2/100": "HIDDEN must be a multiple of 64",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_option_that_does_not_exist(name, capsys):
    program = pytest.importorskip(f"experiments.{name}", exc_type=ModuleNotFoundError)
    assert program.main(["--nothing", "table1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "required" in line or "--nothing" in line


@pytest.mark.parametrize(("command", "words"), WRONG.items())
def test_option_that_cannot_be(command, words, tmp_path, capsys):
    (tmp_path / "SST-2").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "SST-2" / f"{split}.tsv").touch()
    name, *given = command.replace("DATA", str(tmp_path)).split()
    program = importlib.import_module(f"experiments.{name}")
    assert program.main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and words in line
