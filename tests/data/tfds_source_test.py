"""Data sets that TFDS prepares without TensorFlow, against the official files."""

from collections import Counter

import pytest
import tensorflow_datasets as tfds

from bert_jax.tasks.glue import data as glue
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


def glue_records(name, source, split):
    found = glue.read_split(name, str(source), split, Counter())
    return [(row["text"], row["text_b"], row["label"]) for row in found]


@pytest.mark.slow
def test_records_of_mrpc(home, shared_data, tmp_path):
    pytest.importorskip("h5py", reason="TFDS knows GLUE only with it")
    official = shared_data("glue/MRPC")
    rows = {
        split: (official / f"{split}.tsv").read_text("utf-8-sig").splitlines()
        for split in ("train", "dev")
    }
    header, *dev = rows["dev"]
    files = {
        "dev_ids": "".join("\t".join(row.split("\t")[1:3]) + "\n" for row in dev),
        # Microsoft's file, which TFDS divides by the ids of dev.
        "train": "\n".join(["\ufeff" + header, *rows["train"][1:], *dev]),
        "test": f"{header}\n{dev[0]}",
    }
    paths = {name: tmp_path / f"{name}.txt" for name in files}
    for name, text in files.items():
        paths[name].write_text(text, "utf-8")
    home(paths)
    for split in ("train", "dev"):
        found = glue_records("mrpc", "tfds:glue/mrpc", split)
        assert found == glue_records("mrpc", official, split) != []


def test_questions_of_squad(home, shared_data):
    official = shared_data("squad/tiny-squad1.json")
    files = dict.fromkeys(("train", "dev"), official)
    home(files)
    expected, _ = squad.read_questions(official)
    found, counts = squad.read_questions("tfds:squad/v1.1:validation")
    assert sorted(found, key=str) == sorted(expected, key=str) != []
    assert not counts
