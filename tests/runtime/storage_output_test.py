"""The target of --output: a file is replaced whole, anything else is refused."""

import os
from pathlib import Path

import pytest

from bert_jax.errors import UserError
from bert_jax.runtime import failures, storage, terminal
from tests.runs import no_room, wait_until


def write(place, text="text\n"):
    with storage.replace_file(storage.output_path(str(place))) as file:
        file.write(text)


def test_full_disk_is_named_with_its_file(tmp_path):
    place = tmp_path / "answers.jsonl"
    for whole in (write, storage.write_atomically):
        with no_room(100), pytest.raises(OSError, match="File too large") as found:
            whole(place, "x" * 101)  # seen at closing
        assert failures.describe_failure(found.value) == (
            2,
            f"{place}: File too large; make room there and run the same command again",
        )
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be_a_file_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to_folder").symlink_to(".")
    (tmp_path / "nowhere").symlink_to("missing/file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "to_folder", "nowhere", "missing/file", ".", "pipe"):
        with pytest.raises(UserError, match="must be a file in an existing folder"):
            storage.output_path(str(Path(tmp_path, name)))


def test_progress_gets_its_total_while_rows_are_answered():
    bar = terminal.live_line(False)
    assert bar.total is None
    terminal.count_for(bar, iter("abc"))
    wait_until(lambda: bar.total == 3)
