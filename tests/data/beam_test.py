"""Preparation on Apache Beam: the process pool's bytes, and how it fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("apache_beam", reason="needs the beam extra")

from prepare_test import make_config, write_corpus

from bert_jax.data import chunks, prepare

LENGTH = 32


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2000)
    write_corpus(tmp_path / "corpus.txt")
    return make_config(tmp_path)


def test_same_bytes(config, tmp_path):
    pool = prepare.prepare(config, LENGTH).folder
    assert len(content(pool)) >= 8
    config.corpus.runner = "FnApiRunner"
    for number, options in enumerate([(), ("--direct_num_workers=2","--direct_running_mode=multi_processing")]):
        config.corpus.data_dir = str(tmp_path / f"beam{number}")
        config.corpus.beam_options = options
        start = time.time()
        folder = prepare.prepare(config, LENGTH).folder
        print("took", time.time() - start)
        assert folder.name == pool.name
        assert content(folder) == content(pool)
