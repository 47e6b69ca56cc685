"""Data come from files, whose names are text."""

import bz2
import gzip
import lzma
import os
import tracemalloc

import pytest

from bert_jax import main, tokenization
from bert_jax.data import lines
from bert_jax.errors import UserError
from bert_jax.runtime import signals, storage, untrusted
from bert_jax.workdir import metrics


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    # Without a writer a reader would wait for ever where it should not begin.
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"{}\n")
    os.close(writer)
    return path


@pytest.mark.parametrize(
    "read",
    [
        lambda path: list(lines.read_lines(path)),
        lambda path: untrusted.read_object(path),
        lambda path: tokenization.load(path),
    ],
    ids=["lines", "json", "vocabulary"],
)
def test_a_pipe_is_no_data_file(pipe, read):
    with pytest.raises(UserError, match=r"pipe.*a pipe or a device can be read onl"):
        read(pipe)


@pytest.mark.parametrize("ending", ["", *lines.COMPRESSED])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\rb\nc\n", ["a\rb", "c"]),  # inside of a text
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r", ["a"]),
        (b"a\r\n", ["a"]),
        (b"\r", [""]),
    ],
)
def test_line_ends(tmp_path, ending, content, expected):
    path = tmp_path / f"table.tsv{ending}"
    path.write_bytes(compressed(content, ending))
    found = list(lines.read_lines(path))
    assert found == [*enumerate(expected, 1)]


def compressed(content, ending):
    if ending == ".zst":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the clean extra")
        return pyarrow.compress(content, codec="zstd", asbytes=True)
    module = {".gz": gzip, ".bz2": bz2, ".xz": lzma}.get(ending)
    return module.compress(content) if module else content


@pytest.mark.parametrize(
    "flag",
    [
        "--workdir={}",
        "--output={}",
        "--config.init_from={}",
        "--config.corpus.sources=('text:{}',)",
    ],
)
def test_a_name_that_is_no_text_is_refused(tmp_path, capfd, flag, micro):
    bring_back = signals.remember()
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    text = flag.format(folder)
    if "sources" not in flag:
        flags = [text]
    else:  # in a tuple of a command line it is a text like any other
        flags = [text.replace("\udcff", "\\udcff"), f"--workdir={tmp_path / 'run'}"]
    assert main.main([f"--config={micro}", "--mode=describe", *flags]) == 2
    bring_back()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: --") and "is not UTF-8" in line
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_the_current_folder_is_looked_at(
    tmp_path, capfd, micro, monkeypatch
):
    bring_back = signals.remember()
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    monkeypatch.chdir(folder)
    assert main.main([f"--config={micro}", "--workdir=run"]) == 2
    bring_back()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: --workdir='run': the name '") and "rename it" in line


def test_a_run_s_own_files_are_no_pipes(tmp_path, pipe):
    target = tmp_path / "target"
    target.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(target)
    for path in (pipe, link):
        storage.write_atomically(path, "whole")
        assert path.read_text() == "whole" and not path.is_symlink()
    assert target.read_text() == "mine"
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(OSError, match="a pipe or a device"):
        metrics.read(tmp_path, "dev")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_giant_line_is_refused_before_it_fills_the_memory(tmp_path, ending):
    path = tmp_path / f"giant.txt{ending}"
    with gzip.open(path, "wb", 1) if ending else path.open("wb") as file:
        file.write(b"short\n")
        for _ in range(9):
            file.write(b"word" * (lines.LONGEST // 32))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"giant.txt.*:2: a line of more than 67,108,8"):
        list(lines.read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * lines.LONGEST
