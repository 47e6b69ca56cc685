"""What a killed process leaves is deleted by the next writer of the same target."""

import os

import pytest
from runs import ready

from bert_jax.data import atomic_folder
from bert_jax.runtime import temporary

WRITER = """
import pathlib, sys, time
from bert_jax.runtime import temporary
target = pathlib.Path(sys.argv[2])
with getattr(temporary, sys.argv[1])(target) as opened:
    if sys.argv[1] == "file":
        opened.write("half")
        opened.flush()
    else:
        (opened / "shard").write_text("half")
    print("ready", flush=True)
    time.sleep(600)
"""


def leftovers(folder):
    return [path for path in folder.iterdir() if path.name.endswith(".bert_jax")]


def write(kind, target):
    if kind == "file":
        with temporary.file(target) as opened:
            opened.write("whole")
    else:
        with temporary.folder(target) as new:
            (new / "shard").write_text("whole")


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "target"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), temporary.file(target) as opened:
        opened.write("half")
        assert target.read_text() == "before"
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "before"
    write("file", target)
    assert target.read_text() == "whole"
    before = os.umask(0o027)
    try:
        write("file", target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o640


def test_prepared_data_of_a_killed_preparation_is_deleted(tmp_path):
    target = tmp_path / "0123456789abcdef"
    with ready(WRITER, "folder", target):
        pass
    assert len(leftovers(tmp_path)) == 1
    with atomic_folder.made_whole(target, "last") as new:
        (new / "last").write_text("all")
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert target.stat().st_mode & 0o700 == 0o700
