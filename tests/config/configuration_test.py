"""One line for a wrong config file, field or flag, with the intended spelling."""

from pathlib import Path

import pytest

from bert_jax import main
from bert_jax.config import configuration, files, help
from tests.micro import error_line

TINY = "configs/tiny.py"
DEF = 'extends = "tiny"\n\n\ndef get_config(config):\n    '


MEANT = "--config.{}: no such field; did you mean --config."


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("train.batch=1", MEANT + "train.batch_size?"),
        (
            "learning_rat=1",
            MEANT + "optimizer.learning_rate or --config.phase2.learning_rate?",
        ),
        ("optimiser.learning_rate=1", MEANT + "optimizer.learning_rate?"),
        ("zzz=1", "--config.{}: no such field; there are checkpoint, corpus"),
        ("corpus.nsp=maybe", "config.{} takes a value of type bool: True or False"),
        (
            "optimizer.frozen=(a,b",
            "config.{} takes a value of type tuple, such as \"('a', 'b')\"",
        ),
        ("init_layers=1-3", 'items must be of type int, such as "(1, 2)"'),
    ],
)
def test_flag_that_is_wrong_is_named(flag, said):
    line = error_line(configuration.load_config, TINY, [f"--config.{flag}"])
    assert said.format(flag.partition("=")[0]) in line
    assert line.startswith(("--config.", "config.init_layers="))


@pytest.mark.parametrize("spec", ["tiny", "finetune/glue:task=mnli"])
def test_name_alone_is_that_of_a_file_in_configs(spec, tmp_path, monkeypatch):
    """As `extends` has it."""
    name, colon, arguments = spec.partition(":")
    path = files.CONFIGS / f"{name}.py"
    expected = configuration.load_config(
        f"{path}{colon}{arguments}", ["--config.seed=3"]
    )
    monkeypatch.chdir(tmp_path)
    assert configuration.load_config(spec, ["--config.seed=3"]) == expected
    assert "--config.seed=0  # " in help.help_text(spec)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{DEF}config.train.num_steps = 'many'\n",
            "5: TypeError: Could not override field 'num_steps'",
        ),
        ("import broken_module\n", "broken_module.py:2: SyntaxError: invalid syntax"),
        (f"{DEF}config.seed = sed\n", "5: NameError: name 'sed' is not defined"),
    ],
)
def test_config_file_that_raises(text, said, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("broken_module.py").write_text("x = 1\ny = = 2\n")
    Path("own.py").write_text(text)
    assert main.main(["--config=own.py"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    place = "" if said.startswith("broken") else "own.py:"
    assert line.startswith(f"error: {place}{said}")
    assert len(line) < 250


def test_field_of_the_task_that_nothing_reads(tmp_path):
    path = tmp_path / "mine.py"
    text = 'extends = "finetune/text:recipe=tiny"\n\n\ndef get_config(config):\n'
    path.write_text(f"{text}    config.task.max_seq_lenght = 64\n")
    assert error_line(configuration.load_config, str(path), []).startswith(
        f"{path}: config.task.max_seq_lenght: no such field; did you mean "
        "config.task.max_seq_length?"
    )
