"""What all programs of experiments/ do with arguments that are wrong."""

import pytest

PROGRAMS = (
    *("architecture_diagrams", "attention_plot", "compare", "docstrings", "features"),
    *("glue", "grid_spread", "leak", "learning_curves", "paper.__main__"),
    *("paper.budget", "probes", "senses", "squad_ensemble", "sweep", "triviaqa"),
    *("english.by_kind", "english.cloze", "english.rounding"),
    "english.table",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_option_gives_one_line(name, capsys):
    program = pytest.importorskip(f"experiments.{name}", exc_type=ModuleNotFoundError)
    assert program.main(["--nothing", "table1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "required" in line or "--nothing" in line
