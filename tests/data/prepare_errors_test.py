"""Preparation refused, interrupted, without room or twice at once: nothing is left."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.data import prepare, writing
from bert_jax.errors import Interrupted
from bert_jax.runtime import storage
from tests.data.preparing import made, make_config, names, read, write_corpus
from tests.micro import error_line
from tests.runs import LIMIT


@pytest.fixture
def config(tmp_path):
    write_corpus(tmp_path / "corpus.txt")
    return make_config(tmp_path)


@pytest.mark.parametrize(
    ("documents", "more", "said"),
    [
        (1, b"", "one document cannot be"),
        (12, b"caf\xe9\n", r"corpus\.txt:253: byte .* is not UTF-8"),
    ],
)
def test_text_that_is_wrong_leaves_nothing(config, tmp_path, documents, more, said):
    with write_corpus(tmp_path / "corpus.txt", documents).open("ab") as file:
        file.write(more)
    assert re.search(said, error_line(made, config))
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
