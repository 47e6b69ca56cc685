"""What all programs of experiments/ do with arguments that are wrong, and modules that
are no programs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.errors import UserError
from experiments.lib import command_line, started

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = (
    *("pages.architecture_diagrams", "insight.attention_plot", "insight.probes"),
    *("insight.senses", "sweeps.compare", "sweeps.sweep", "english.docstrings"),
    *("paper.features", "paper.glue", "paper.__main__", "paper.budget"),
    *("paper.squad_ensemble", "paper.triviaqa", "claims.grid_spread", "claims.leak"),
    *("claims.learning_curves", "english.by_kind", "english.cloze"),
    "english.table",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_option_gives_one_line(name, capsys):
    program = pytest.importorskip(f"experiments.{name}", exc_type=ModuleNotFoundError)
    assert program.main(["--nothing", "table1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "required" in line or "--nothing" in line


def test_a_value_that_argparse_takes_away_is_refused():
    parser = command_line.Parser("x", None)
    parser.add_argument("--output")
    with pytest.raises(UserError, match="--output=--: no value; see --help"):
        parser.parse_args(["--output=--"])
    with pytest.raises(UserError, match="s3:/a: a bucket; name a local place"):
        parser.parse_args(["--output", "s3:/a"])


def test_help_shows_the_docstring_with_its_examples_and_defaults(capsys):
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("experiments.sweeps.sweep").main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: python -m experiments.sweeps.sweep ")
    assert " --grid=optimizer.learning_rate=1e-3,3e-4 --grid=seed=0,1,2 " in said
    assert "(default: runs/sweep)" in said and "(default: )" not in said


def test_a_module_that_is_no_command_says_so():
    """It printed nothing and ended with 0."""
    command = [sys.executable, "-m", "experiments.capacity.estimate", "--help"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == (
        "error: experiments.capacity.estimate is no command; near it: "
        "experiments.capacity.fits, experiments.capacity.plan\n"
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("experiments.claims.spread_report", "experiments.claims.grid_spread"),
        ("experiments.paper.tables", "experiments.paper"),
        ("experiments.cbow", "experiments.cbow.vectors"),
        ("experiments.speed", "experiments.speed.gpu, "),
        ("experiments", "experiments.capacity.fits, "),
        ("experiments.lib.ending", "experiments.capacity.fits, "),
    ],
)
def test_the_commands_near_a_module_are_named(name, near, capsys):
    with pytest.raises(SystemExit) as ended:
        started.check(["python", "-X", "utf8", "-m", name, "--steps=3"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {name} is no command; near it: {near}")


def test_commands_start():
    known = started.commands()
    assert {f"experiments.{name.removesuffix('.__main__')}" for name in PROGRAMS} <= {
        *known
    }
    for name in (*known, "experiments.misspelt", "bert_jax.main", "pytest"):
        started.check(["python", "-m", name])
    started.check(["python", "script.py"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (
            "insight.attention_plot",
            "--input=a.safetensors --layer=0 --head=0 --output=a.png",
        ),
        (
            "claims.learning_curves",
            "--data=DATA --init_from=PLAIN --examples=4 --output=OUT",
        ),
        ("insight.probes", "--init_from=none --sst2=none --output=OUT --plot"),
        (
            "insight.senses",
            "--init_from=none --word=a --sentences=none --output=OUT --plot",
        ),
    ],
)
def test_without_matplotlib_nothing_begins(
    name, arguments, plain, tmp_path, monkeypatch, capsys
):
    """Every plot asks for its extra alike, before anything is read or written."""
    for split in ("train", "test"):
        rows = [json.dumps({"text": f"a {n}", "label": n % 2}) for n in range(8)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    program = importlib.import_module(f"experiments.{name}")
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda m: None if m == "matplotlib" else real(m)
    )
    places = {"DATA": tmp_path, "PLAIN": plain, "OUT": tmp_path / "out"}
    for word, place in places.items():
        arguments = arguments.replace(word, str(place))
    assert program.main(arguments.split()) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert line.endswith(" needs matplotlib: pip install -e '.[report]'") or (
        line.endswith(" need matplotlib: pip install -e '.[report]'")
    )
    assert not (tmp_path / "out").exists()
