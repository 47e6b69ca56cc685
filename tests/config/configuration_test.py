"""One line for a wrong config file, field or flag, with the intended spelling."""

import re
from pathlib import Path

import pytest

from bert_jax import main
from bert_jax.config import configuration, files, help
from bert_jax.errors import UserError

TINY = "configs/tiny.py"
DEF = 'extends = "tiny"\n\n\ndef get_config(config):\n    '


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("train.batch=1", "train.batch_size?"),
        ("learning_rat=1", "optimizer.learning_rate or --config.phase2.learning_rate?"),
        ("optimiser.learning_rate=1", "optimizer.learning_rate?"),
    ],
)
def test_misspelled_field_is_looked_for_in_every_group(flag, meant):
    with pytest.raises(UserError) as error:
        configuration.load_config(TINY, [f"--config.{flag}"])
    name = flag.partition("=")[0]
    said = f"--config.{name}: no such field; did you mean --config.{meant}"
    assert str(error.value).startswith(said)


def test_field_that_is_like_no_other():
    with pytest.raises(UserError, match="no such field; there are checkpoint, corpus"):
        configuration.load_config(TINY, ["--config.zzz=1"])


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
    with pytest.raises(UserError) as error:
        configuration.load_config(str(path), [])
    assert str(error.value).startswith(
        f"{path}: config.task.max_seq_lenght: no such field; did you mean "
        "config.task.max_seq_length?"
    )


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("corpus.nsp=maybe", "takes a value of type bool: True or False"),
        (
            "optimizer.frozen=(a,b",
            "takes a value of type tuple, such as \"('a', 'b')\"",
        ),
        ("init_layers=1-3", 'items must be of type int, such as "(1, 2)"'),
    ],
)
def test_value_of_another_type_is_refused_with_an_example(flag, said):
    with pytest.raises(UserError, match=re.escape(said)):
        configuration.load_config(TINY, [f"--config.{flag}"])
