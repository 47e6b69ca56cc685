"""`--help`, and names that are nearly right."""

import re
import subprocess
import sys

import pytest

from bert_jax import commands
from bert_jax.config import command_line, configuration, fields
from bert_jax.errors import UserError
from bert_jax.families.elmo import fields as elmo
from bert_jax.registry import FAMILIES
from tests.runs import here


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_mode_command_and_flag(flag):
    out, err = here(flag)
    assert not err
    for name in (*command_line.MODES, *commands.NAMES):
        assert f"\n  {name} " in out
    for name in ("config", "workdir", "input", "output", "host", "port", "onnx"):
        assert f"--{name}=" in out


@pytest.mark.parametrize("spec", ["finetune/glue:task=cola", "tiny"])
def test_help_of_a_config_has_the_fields_that_its_task_reads(spec):
    out, _ = here("--help", "--config", spec)
    config = configuration.load_config(spec, [])
    lines = out.splitlines()
    shown = {line.partition("  # ")[0] for line in lines}
    for name, value in fields.iter_fields(config):
        of_pretraining = ("corpus.", "masking.", "phase2.", "train.phases")
        unread = name.startswith(of_pretraining) and spec != "tiny"
        assert (f"--config.{name}={value!r}" in shown) != unread
    assert "  # number in [0, 1)\n" in out
    assert max(len(line) for line in lines if line.startswith("    ")) <= 88


_KNOWN = fields.FIELDS | fields.TASK | elmo.FIELDS
for _family in FAMILIES.values():
    _KNOWN = _family.fields | _KNOWN


@pytest.mark.parametrize("name", _KNOWN)
def test_comment_of_a_field_can_be_read_alone(name):
    doc = _KNOWN[name].doc
    refers = "(The|As|For|Over|With|Without|Their|That|These|This|Those|It) "
    assert doc[0].isupper() and not re.match(refers, doc)
    assert not re.search("the next (two|three|four)|fields? (below|above)", doc)


def test_help_imports_no_jax():
    code = (
        "import sys; from bert_jax.main import main; assert main(['--help']) == 0; "
        "assert not {'jax', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_file_that_is_nearly_right():
    with pytest.raises(UserError, match=r"did you mean configs/finetune/squad\.py\?"):
        configuration.load_config("configs/finetune/sqad.py", [])
