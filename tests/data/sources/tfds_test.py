"""Data sets that TFDS prepares without TensorFlow, against the official files."""

import sys

import pytest
import tensorflow_datasets as tfds

from bert_jax.data.sources import tfds as source
from bert_jax.errors import UserError
from bert_jax.tasks.squad import data as squad
from tests.micro import error_line

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


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    line = error_line(squad.read_questions, "tfds:squad/v1.1:validation")
    needed = "needs tensorflow-datasets: pip install '.[pretrain]'"
    assert line == f"tfds:squad/v1.1: {needed}"


def test_class_of_another_package_is_not_imported(make_builder, tmp_path, monkeypatch):
    """It may be a file in the current folder."""
    features = {"text": tfds.features.Text()}
    folder = make_builder(tmp_path, "mine", [{"text": "a"}], features)
    path = folder / "features.json"
    text = path.read_text().replace("tensorflow_datasets.core.features.text", "evil")
    path.write_text(text)
    (tmp_path / "evil_feature.py").write_text("raise AssertionError\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=rf"tfds:{folder}: .* class evil_feature.Text;"):
        next(source.split_rows(str(folder), "train"))
