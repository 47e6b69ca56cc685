"""Files and folders under a temporary name are there whole or not at all."""

import os

import pytest

from bert_jax.runtime import storage


def write(target):
    with storage.replace_file(target) as opened:
        opened.write("whole")


def test_file_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "target"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), storage.replace_file(target) as opened:
        opened.write("half")
        assert target.read_text() == "before"
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "before"
    write(target)
    assert target.read_text() == "whole"
    before = os.umask(0o027)
    try:
        write(target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o640


def test_link_stays(tmp_path):
    (tmp_path / "link").symlink_to("target")
    storage.write_atomically(tmp_path / "link", "whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "whole"


def test_folder_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "target"
    with pytest.raises(ZeroDivisionError), storage.temporary_folder(target) as new:
        (new / "shard").write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    before = os.umask(0o027)
    try:
        with storage.temporary_folder(target) as new:
            (new / "shard").write_text("whole")
            new.rename(target)
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (target / "shard").read_text() == "whole"
    assert target.stat().st_mode & 0o777 == 0o750
