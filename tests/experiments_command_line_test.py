"""What all programs of experiments/ do with arguments that are wrong."""

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


def test_a_bucket_is_refused():
    parser = command_line.Parser("x", None)
    parser.add_argument("--output")
    with pytest.raises(UserError, match="s3:/a: a bucket; name a local place"):
        parser.parse_args(["--output", "s3:/a"])
