"""Preparation on Apache Beam: the process pool's bytes, and how it fails."""

import importlib.util
import os
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax.data import chunks
from bert_jax.data.chunks import Chunk
from bert_jax.data.table import Column, Table
from bert_jax.data.writing import Job, Part
from tests.data.preparing import contents, made, make_config, prepared, write_corpus
from tests.micro import error_line

TWO, TWICE = "--direct_num_workers=2", "--direct_runner_bundle_repeat=2"


@pytest.fixture
def mapped(tmp_path):
    """Maps a function over some chunks on the runner of the process pool."""
    pytest.importorskip("apache_beam", reason="needs the beam extra")
    from bert_jax.data import beam

    def run(function, count, *options):
        settings = ConfigDict({"runner": "FnApiRunner", "beam_options": options})
        job = Job(tmp_path, None, None, settings, None, 0)
        numbered = [Chunk("train", number, []) for number in range(count)]
        return beam.ordered_map(settings, function, job, numbered)

    return run


def pids(_, chunk):
    """A result with this process's number."""
    time.sleep(0.1)
    table = Table(number=Column(np.array([chunk.number])))
    return Part("train", table, Counter(pid=os.getpid()), np.zeros(0))


def notes(job, chunk):
    """Returns a result and leaves a file for each call."""
    os.close(tempfile.mkstemp(prefix=f"call-{chunk.number}-", dir=job.aside)[0])
    return pids(job, chunk)


def fails_at_three(_, chunk):
    if chunk.number == 3:
        raise ValueError("a bad chunk")
    return pids(_, chunk)


@pytest.fixture(autouse=True)
def workers_find_this_module(tmp_path, monkeypatch):
    root = f"{Path(__file__).parents[2]}"
    monkeypatch.setenv("PYTHONPATH", root, prepend=os.pathsep)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # for Beam's messages


@pytest.mark.slow
def test_beam_gives_the_pools_bytes(tmp_path, monkeypatch, capfd):
    pytest.importorskip("apache_beam", reason="needs the beam extra")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2000)
    write_corpus(tmp_path / "corpus.txt")
    found = {}
    for runner in ("", "FnApiRunner"):
        config = make_config(tmp_path, **{"corpus.runner": runner})
        config.corpus.data_dir = str(tmp_path / f"by{runner}")
        folder = made(config)
        found[runner] = {folder.name: contents(folder)}
        assert "prepared 12 documents" in capfd.readouterr().err
    assert found[""] == found["FnApiRunner"]


@pytest.mark.slow
def test_beam_names_a_failing_chunk(mapped):
    line = error_line(list, mapped(fails_at_three, 8))
    assert re.search("runner=FnApiRunner: .*a bad chunk; check ", line)


@pytest.mark.slow
def test_beam_repeats_no_bundle(mapped, tmp_path):
    """Each bundle is requested from the pool twice, and nothing is done twice."""
    parts = list(mapped(notes, 8, TWO, TWICE))
    assert [part.table["number"].values for part in parts] == list(range(8))
    assert len({part.totals["pid"] for part in parts}) == 2
    assert len(list(tmp_path.glob("call-*"))) == 8


def test_beam_missing_is_one_line(tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus.txt")
    config = make_config(tmp_path, **{"corpus.runner": "FnApiRunner"})
    find_spec = importlib.util.find_spec

    def without_beam(name):
        return None if name.startswith("apache_beam") else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_beam)
    assert "pip install '.[beam]'" in error_line(prepared, config)
