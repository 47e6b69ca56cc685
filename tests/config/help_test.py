"""`--help`, and names that are nearly right."""

import subprocess
import sys

import pytest
from runs import here

from bert_jax.config import command_line, configuration, fields
from bert_jax.errors import UserError


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_mode_and_flag(flag):
    out, err = here(flag)
    assert not err
    for mode in command_line.MODES:
        assert f"\n  {mode} " in out
    for name in ("config", "workdir", "input", "output"):
        assert f"--{name}=" in out


def test_help_of_a_config_has_all_of_its_fields():
    spec = "configs/finetune/glue.py:task=cola"
    out, _ = here("--help", "--config", spec)
    config = configuration.load_config(spec, [])
    assert out.startswith("GLUE: cola sst2")
    lines = out.splitlines()
    for name, value in fields.iter_fields(config):
        assert f"--config.{name}={value!r}" in lines
    place = lines.index("--config.train.num_steps=0")
    # Not why ax has another value.
    assert lines[place + 1].endswith("; 0: num_epochs decides")
    assert "    Texts that share a row in training, for speed" in out
    assert max(len(line) for line in lines if line.startswith("    ")) <= 88


def test_help_imports_no_jax():
    code = (
        "import sys; from bert_jax.main import main; assert main(['--help']) == 0; "
        "assert not {'jax', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_file_that_is_nearly_right():
    with pytest.raises(UserError, match=r"did you mean configs/finetune/squad\.py\?"):
        configuration.load_config("configs/finetune/sqad.py", [])
