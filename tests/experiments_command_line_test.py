"""What all programs of experiments/ do with arguments that are wrong."""

import importlib.util
import json

import pytest

from bert_jax.errors import UserError
from experiments.lib import command_line

PROGRAMS = (
    *("insight.attention_plot", "insight.probes", "english.docstrings"),
    *("sweeps.sweep", "claims.leak", "claims.learning_curves"),
    *("paper.features", "paper.__main__", "paper.budget"),
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


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (
            "insight.attention_plot",
            "--input=a.safetensors --layer=0 --head=0 --output=a.png",
        )
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
