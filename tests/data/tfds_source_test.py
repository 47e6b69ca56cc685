"""Data sets that TFDS prepares without TensorFlow, against the official files."""

import pytest
import tensorflow_datasets as tfds

from bert_jax.tasks.squad import data as squad

Downloads = tfds.download.DownloadManager


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty TFDS_DATA_DIR. TFDS then downloads the files of `home(FILES)`."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))

    def sent(files):
        # `download_and_extract` of files that are no archives is this too.
        for name in ("download", "download_and_extract"):
            monkeypatch.setattr(Downloads, name, lambda self, url: files)

    return sent


def test_questions_of_squad(home, shared_data):
    official = shared_data("squad/tiny-squad1.json")
    files = dict.fromkeys(("train", "dev"), official)
    home(files)
    expected = squad.read_questions(official)
    found = squad.read_questions("tfds:squad/v1.1:validation")
    assert sorted(found, key=str) == sorted(expected, key=str) != []
