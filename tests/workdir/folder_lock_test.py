"""Two runs in one work directory: the second names the first and changes nothing."""

import pytest

from bert_jax import main
from tests.runs import kill, start, wait_until

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
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        assert run(folder) == 2
        err = capfd.readouterr().err
        assert str(tmp_path / "file") in err and err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"
