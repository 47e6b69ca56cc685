"""What --output names: a file is replaced whole, anything else is written through."""

import json
import os
import resource
import stat
import sys
import threading
from pathlib import Path

import pytest

from bert_jax import main
from bert_jax.errors import UserError
from bert_jax.runtime import failures, storage
from bert_jax.tasks import streaming


@pytest.fixture
def fifo(tmp_path):
    """A pipe with a name; `read` waits for its writer to close it."""
    path, said = tmp_path / "fifo", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: said.append(path.read_text()), daemon=True)
    reader.start()

    def read():
        reader.join(10)
        return "".join(said)

    return path, read


def write(place, text="text\n"):
    with storage.replacing(storage.output(str(place))) as file:
        file.write(text)


def test_a_pipe_is_written_to_and_stays(fifo):
    path, read = fifo
    write(path)
    assert read() == "text\n"
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(path.parent) == ["fifo"]


@pytest.mark.parametrize("mode", ["predict", "describe"])
def test_every_mode_writes_into_a_pipe(micro, plain, tmp_path, fifo, mode):
    path, read = fifo
    (tmp_path / "in.jsonl").write_text('{"text": "the [MASK]"}\n')
    args = [f"--config={micro}", f"--workdir={plain}", f"--mode={mode}"]
    args += [f"--input={tmp_path}/in.jsonl", f"--output={path}"]
    assert main.main(args) == 0
    assert stat.S_ISFIFO(path.stat().st_mode)
    (expected,) = {"masks", "parameters"} & json.loads(read()).keys()
    assert expected == {"predict": "masks", "describe": "parameters"}[mode]


def test_a_device_is_written_to_and_stays(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_text("")
    except OSError:
        pytest.skip("no device can be made here")
    write(device)
    assert stat.S_ISCHR(device.stat().st_mode)
    assert os.listdir(tmp_path) == ["null"]


def test_a_link_stays_and_what_it_leads_to_is_replaced_whole(tmp_path):
    for name in ("data", "links"):
        (tmp_path / name).mkdir()
    target, link = tmp_path / "data" / "file", tmp_path / "links" / "link"
    (tmp_path / "links" / "between").symlink_to("../data/file")
    link.symlink_to("between")
    for text in ("one\n", "two\n"):  # first it leads to nothing
        write(link, text)
        assert target.read_text() == text and not target.is_symlink()
    with pytest.raises(ZeroDivisionError):
        write(link, f"half of {1 / 0}")
    with pytest.raises(ZeroDivisionError), storage.replacing(link) as file:
        file.write(f"half of {1 / 0}")
    assert target.read_text() == "two\n"
    assert os.readlink(link) == "between"
    assert os.listdir(target.parent) == ["file"]
    assert sorted(os.listdir(link.parent)) == ["between", "link"]


def test_a_link_to_a_pipe_is_written_through(fifo):
    path, read = fifo
    link = path.with_name("link")
    link.symlink_to(path.name)
    write(link)
    assert read() == "text\n" and link.is_symlink()


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_an_open_file_is_written_to_behind_what_it_holds(tmp_path):
    path = tmp_path / "file"
    with path.open("w") as file:
        file.write("before\n")
        file.flush()
        link = tmp_path / "stdout"  # as /dev/stdout is one
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        inode = path.stat().st_ino
        write(link)
    assert path.read_text() == "before\ntext\n"
    assert path.stat().st_ino == inode


@pytest.fixture
def no_room():
    """A file's size is limited, as a full disk limits it."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


@pytest.mark.parametrize("length", [101, 100_000])  # seen at closing, and before
def test_a_full_disk_is_named_with_its_file(tmp_path, no_room, length):
    place = tmp_path / "answers.jsonl"
    for whole in (write, storage.write_atomically):
        with pytest.raises(OSError, match="File too large") as found:
            whole(place, "x" * length)
        assert failures.describe(found.value) == (
            2,
            f"{place}: File too large; make room there and run the same command again",
        )
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_behind_standard_output(tmp_path, no_room, monkeypatch):
    file = os.open(tmp_path / "answers.jsonl", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"x" * 100)
    monkeypatch.setattr(sys, "stdout", os.fdopen(file, "w", closefd=False))
    with (
        pytest.raises(OSError, match="File too large") as found,
        streaming.output("-") as output,
    ):
        output.write("x")
        output.flush()
    os.close(file)
    assert failures.describe(found.value)[1].startswith("standard output: ")


def test_what_cannot_be_a_file_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to_folder").symlink_to(".")
    (tmp_path / "nowhere").symlink_to("missing/file")
    for name in ("loop", "to_folder", "nowhere", "missing/file", "."):
        with pytest.raises(UserError, match="must be a file in an existing folder"):
            storage.output(str(Path(tmp_path, name)))
