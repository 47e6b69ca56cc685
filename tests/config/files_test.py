"""The code that a config file consists of."""

import sys
from pathlib import Path

import pytest

from bert_jax.config import files
from bert_jax.data.masking import MASKINGS
from bert_jax.errors import UserError

CONFIG = "def get_config(config):\n    return config\n"
CONSTANTS = "mine/constants.py"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Config files that extend each other, and a package that they import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    texts = {
        "top.py": f"import json\nimport numpy\nextends = 'sub/base:'\n{CONFIG}",
        "sub/base.py": f"from mine import loss\nextends = 'tiny'\n{CONFIG}",
        "mine/__init__.py": "",
        "mine/loss.py": "from .constants import LATE\nimport mine.shared\n",
        CONSTANTS: "LATE = 'mine.named:made'\n",
        "mine/shared.py": "def late():\n    from mine.lazy import deep\n",
        "mine/lazy/__init__.py": "raise RuntimeError('is not imported')\n",
        "mine/lazy/deep.py": "from bert_jax.config import files\n",
        "mine/named.py": "made = 1\n",
        "mine/unused.py": "",
        "lib/site-packages/installed.py": "",
    }
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    yield texts
    for name in [x for x in sys.modules if x.partition(".")[0] == "mine"]:
        del sys.modules[name]


def test_code_is_that_of_files_that_are_extended_or_imported(project, monkeypatch):
    monkeypatch.syspath_prepend("lib/site-packages")
    Path("top.py").write_text(f"import installed\n{project['top.py']}")
    for _ in range(2):  # the second time the modules are there
        files.load_file("top.py")
        found = files.read_code("top.py")
        ours = {f"configs/{name}.py" for name in ("tiny",)}
        others = {name for name in found if name.startswith("configs/")}
        assert others == ours
        left_out = {"mine/unused.py", "lib/site-packages/installed.py"}
        assert {*found} - others == {*project} - left_out
    assert found["mine/loss.py"].decode() == project["mine/loss.py"]
    Path(CONSTANTS).write_text("LATE = None\n")
    files.load_file("sub/base.py")
    found = files.read_code("sub/base.py")
    assert found[CONSTANTS] == b"LATE = None\n"
    assert "mine/named.py" not in found and "base.py" in found


def test_code_of_a_file_above_has_a_name_without_dots(project):
    Path("sub/own.py").write_text(f"extends = '../top'\n{CONFIG}")
    files.load_file("sub/own.py")
    found = files.read_code("sub/own.py")
    assert {"own.py", "base.py", "up/top.py"} < {*found}


def test_code_has_what_a_file_loads_at_its_top_level(project):
    Path("top.py").write_text(
        "from bert_jax.config import files\n"
        "base = files.load_file('sub/base.py')\n"
        "def get_config(*, steps='3'):\n"
        "    base.train.num_steps = int(steps)\n    return base\n"
    )
    assert files.load_file("top.py:steps=5").train.num_steps == 5
    assert "sub/base.py" in files.read_code("top.py")


def test_entry_of_a_file_replaces_that_of_its_base(project):
    entry = "from bert_jax.data.masking import MASKINGS\nMASKINGS['x'] = ['{}']\n"
    for name, base in (("base.py", "tiny"), ("top.py", "base")):
        text = f"{entry.format(name)}extends = '{base}'\n{CONFIG}"
        Path(name).write_text(text)
    files.load_file("top.py")
    assert MASKINGS["x"] == ["top.py"]


@pytest.mark.parametrize(
    ("text", "notice"),
    [
        ("extends = 'tiny'\n", "defines no get_config"),
        (f"NAME = 'tiny'\nextends = NAME\n{CONFIG}", "must be a file's name in quotes"),
    ],
)
def test_file_that_is_no_config(project, text, notice):
    Path("top.py").write_text(text)
    with pytest.raises(UserError, match=notice):
        files.load_file("top.py")


def test_module_beside_a_file_is_imported_and_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_it.py").write_text("STEPS = 7\n")
    own = tmp_path / "own.py"
    own.write_text(
        "from beside_it import STEPS\nextends = 'tiny'\n"
        "def get_config(config):\n    config.train.num_steps = STEPS\n"
    )
    monkeypatch.chdir("/")
    assert files.load_file(str(own)).train.num_steps == 7
    assert "beside_it.py" in files.read_code(str(own))
    del sys.modules["beside_it"]
