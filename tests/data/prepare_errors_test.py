"""Preparation refused, interrupted, without room or twice at once: nothing is left."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.data import prepare, writing
from bert_jax.errors import Interrupted, UserError
from bert_jax.runtime import storage
from tests.data.preparing import made, make_config, names, read, write_corpus
from tests.runs import LIMIT


@pytest.fixture
def config(tmp_path):
    write_corpus(tmp_path / "corpus.txt")
    return make_config(tmp_path)


def test_prepare_refuses_one_document(config, tmp_path):
    write_corpus(tmp_path / "corpus.txt", documents=1)
    with pytest.raises(UserError, match="one document cannot be"):
        made(config)
    assert names(config.corpus.data_dir) == []


@pytest.mark.parametrize("exception", [KeyboardInterrupt, lambda: Interrupted(15)])
def test_interruption_leaves_nothing(config, monkeypatch, exception):
    prepare.prepare_tokenizer(config)
    before = names(config.corpus.data_dir)

    def stop(*args):
        raise exception()

    monkeypatch.setattr(writing.np, "save", stop)  # of the counts, at the end
    with pytest.raises(type(exception())):
        made(config)
    assert names(config.corpus.data_dir) == before


def test_full_disk_leaves_nothing(config):
    prepare.prepare_tokenizer(config)
    before = names(config.corpus.data_dir)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            made(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.errno in storage.FULL
    assert str(raised.value.filename).startswith(config.corpus.data_dir)
    assert names(config.corpus.data_dir) == before


def test_prepare_leaves_nothing_of_a_bad_file(config, tmp_path):
    with open(tmp_path / "corpus.txt", "ab") as file:
        file.write(b"caf\xe9\n")
    with pytest.raises(UserError, match=r"corpus\.txt:253: byte .* is not UTF-8"):
        made(config)
    assert names(config.corpus.data_dir) == []


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.data import preparing
print(preparing.made(preparing.make_config(Path(sys.argv[2])), 32))
"""


@pytest.mark.slow
def test_prepare_in_two_processes_at_once(config, tmp_path):
    root = Path(prepare.__file__).parents[2]
    command = [sys.executable, "-c", RUN, str(root), str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in "12"]
    first, second = (process.communicate(timeout=LIMIT)[0].strip() for process in both)
    assert first == second
    assert [process.returncode for process in both] == [0, 0]
    assert len(names(config.corpus.data_dir)) == 2  # the vocabulary and the pairs
    assert read(first, "dev")
