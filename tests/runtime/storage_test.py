"""Files and folders are there whole or not at all, and --output's target is a file."""

import os
from pathlib import Path

import pytest

from bert_jax.runtime import failures, storage, terminal
from tests.micro import error_line
from tests.runs import no_room, wait_until


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


def write_output(place, text="text\n"):
    with storage.replace_file(storage.output_path(str(place))) as file:
        file.write(text)


def test_full_disk_is_named_with_its_file(tmp_path):
    place = tmp_path / "answers.jsonl"
    for whole in (write_output, storage.write_atomically):
        with no_room(100), pytest.raises(OSError, match="File too large") as found:
            whole(place, "x" * 101)  # seen at closing
        said = "File too large; make room there and run the same command again"
        assert failures.describe_failure(found.value) == (2, f"{place}: {said}")
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be_a_file_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to_folder").symlink_to(".")
    (tmp_path / "nowhere").symlink_to("missing/file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "to_folder", "nowhere", "missing/file", ".", "pipe"):
        line = error_line(storage.output_path, str(Path(tmp_path, name)))
        assert "must be a file in an existing folder" in line


def test_progress_gets_its_total_while_rows_are_answered():
    bar = terminal.live_line(False)
    assert bar.total is None
    terminal.count_for(bar, iter("abc"))
    wait_until(lambda: bar.total == 3)
