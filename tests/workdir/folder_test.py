"""A work directory belongs to one config, and to one run at a time.

Another config, also by an older version, is refused in one line.
"""

import json
import re

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from bert_jax import main
from bert_jax.config import configuration
from bert_jax.workdir import folder
from tests.micro import error_line
from tests.runs import kill, start, wait_until


def test_run_of_an_own_task_from_before_a_field_was_there(tmp_path):
    config = configuration.load_config("configs/finetune/text.py:recipe=tiny", [])
    config.task.name = "questions"
    config.train.num_steps = 7
    recorded = json.loads(json.dumps(config.to_dict()))
    del recorded["task"]["texts_per_row"]
    (tmp_path / "config.json").write_text(json.dumps(recorded))
    folder.check_run(tmp_path, config)
    config.task.texts_per_row = 4
    line = error_line(folder.check_run, tmp_path, config)
    assert "task.texts_per_row (1 there, 4 now)" in line
    other = configuration.load_config("tiny", [])
    line = error_line(folder.check_run, tmp_path, other)  # is short
    names = r"task\.name \('questions' there, 'pretraining' now\)"
    assert re.search(rf"{names}, and \d+ other fields; use", line)


def test_dev_data_other_than_a_run_began_with(tmp_path):
    config = configuration.load_config("configs/finetune/text.py:recipe=tiny", [])
    vocabulary = Tokenizer(WordLevel({"[UNK]": 0}, "[UNK]"))
    began = {"rows": "a", "dev": {"dev": "b"}}
    folder.claim_folder(tmp_path, config, vocabulary, began)
    for now, name in (
        ({"rows": "a", "dev": {"dev": "c"}}, "dev"),
        ({"rows": "c", "dev": {"dev": "b"}}, "training"),
    ):
        line = error_line(folder.claim_folder, tmp_path, config, vocabulary, now)
        assert f"the {name} data is not what this run" in line
    assert folder.read_data(tmp_path) == began
    # Which splits are scored may change.
    other = {"rows": "a", "dev": {"dev_mm": "c"}}
    folder.claim_folder(tmp_path, config, vocabulary, other)


HOLDER = """
import pathlib, sys, time
from bert_jax.workdir import folder as workdir
with workdir.lock_workdir(pathlib.Path(sys.argv[1])):
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(600)
"""


@pytest.fixture
def run(micro):
    config = f"--config={micro}"
    return lambda folder, *flags: main.main([config, f"--workdir={folder}", *flags])


def content(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_second_run_is_refused_and_a_killed_one_is_followed(run, tmp_path, capfd):
    folder, held = tmp_path / "run", tmp_path / "held"
    process = start(str(folder), str(held), program=("-c", HOLDER))
    wait_until(held.exists, process)
    before = content(folder)
    assert run(folder) == 2
    assert content(folder) == before
    (line,) = capfd.readouterr().err.splitlines()
    words = "another process is training there"
    assert line.startswith(f"error: --workdir={folder}: {words}")
    kill(process)
    assert run(folder, "--config.train.num_steps=2") == 0
    assert (folder / "checkpoints" / "2").exists()


def test_refused_run_leaves_no_folder(run, tmp_path, capfd):
    folder = tmp_path / "new" / "run"
    assert run(folder, "--config.init_from=nowhere") == 2
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)
    assert run(folder, "--config.init_from=nowhere") == 2
    assert list(folder.iterdir()) == []
    assert capfd.readouterr().err.count("error: ") == 2


def test_workdir_that_is_a_file_is_refused(run, tmp_path, capfd):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        assert run(path) == 2
        err = capfd.readouterr().err
        assert str(tmp_path / "file") in err and err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_changed_code_is_named_once_there_is_a_run(tmp_path):
    own, packaged = {"own.py": b"1"}, {"configs/tiny.py": b"1"}
    folder.write_code(tmp_path, own | packaged)
    changed = {"own.py": b"2", "configs/tiny.py": b"2", "more.py": b""}
    assert folder.changed_code_warning(tmp_path, changed) == ""  # no run's copy
    (tmp_path / "config.json").write_text("{}")
    assert folder.changed_code_warning(tmp_path, own | packaged) == ""
    line = folder.changed_code_warning(tmp_path, changed)
    assert "began with: own.py, configs/tiny.py, more.py (a copy is in " in line
    for place in (tmp_path, tmp_path / "seed_0"):  # a seed's code is beside it
        line = folder.changed_code_warning(place, changed, may_add=True)
        assert line.endswith(f"began with: own.py (a copy is in {tmp_path}/code)")
