"""The target of --output: a file is replaced whole, anything else is refused."""

import os
import resource
import sys
from pathlib import Path

import pytest

from bert_jax.errors import UserError
from bert_jax.runtime import failures, storage
from bert_jax.tasks import row_files


def write(place, text="text\n"):
    with storage.replace_file(storage.output_path(str(place))) as file:
        file.write(text)


@pytest.fixture
def no_room():
    """A file's size is limited, as a full disk limits it."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


@pytest.mark.parametrize("length", [101, 100_000])  # seen at closing, and before
def test_full_disk_is_named_with_its_file(tmp_path, no_room, length):
    place = tmp_path / "answers.jsonl"
    for whole in (write, storage.write_atomically):
        with pytest.raises(OSError, match="File too large") as found:
            whole(place, "x" * length)
        assert failures.describe_failure(found.value) == (
            2,
            f"{place}: File too large; make room there and run the same command again",
        )
    assert list(tmp_path.iterdir()) == []


def test_full_disk_behind_standard_output(tmp_path, no_room, monkeypatch):
    file = os.open(tmp_path / "answers.jsonl", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"x" * 100)
    monkeypatch.setattr(sys, "stdout", os.fdopen(file, "w", closefd=False))
    with (
        pytest.raises(OSError, match="File too large") as found,
        row_files.open_output("-") as output,
    ):
        output.write("x")
        output.flush()
    os.close(file)
    assert failures.describe_failure(found.value)[1].startswith("standard output: ")


def test_output_that_cannot_be_a_file_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to_folder").symlink_to(".")
    (tmp_path / "nowhere").symlink_to("missing/file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "to_folder", "nowhere", "missing/file", ".", "pipe"):
        with pytest.raises(UserError, match="must be a file in an existing folder"):
            storage.output_path(str(Path(tmp_path, name)))
