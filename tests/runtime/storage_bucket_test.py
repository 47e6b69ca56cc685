"""Files in a bucket: replaced as a whole, and read as texts, corpora and data sets."""

import gzip

import pytest

from bert_jax.data import atomic_folder, lines, texts
from bert_jax.data import corpus as corpora
from bert_jax.runtime import storage
from tests.micro import error_line


@pytest.mark.slow
def test_corpus_in_a_bucket_is_identified_by_its_versions(here):
    sources = ("text:gs://books/**/*.txt",)
    here.upload("books", "b/2.txt", b"Two.")
    here.upload("books", "b/3.txt/a folder, too", b"Three.")
    here.upload("books", "a/1.txt", b"One.")
    first = corpora.text_identity(sources)
    found = corpora.read_documents(sources, storage.storage_path("gs://books"))
    assert [document.text for document in found] == ["One.", "Two."]
    here.requests.clear()
    assert corpora.text_identity(sources) == first
    assert not any("alt=media" in str(request) for request in here.requests)
    here.upload("books", "a/1.txt", b"Six.")
    assert corpora.text_identity(sources) != first


@pytest.mark.slow
def test_folder_of_a_bucket_is_copied_once_and_whole(here, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here.upload("data", "pairs/train/a.npy", b"one")
    here.upload("data", "pairs/train/b.npy", b"two")
    folder = storage.storage_path("gs://data/pairs") / "train"
    here.refuse = lambda method, path: 404 if "b.npy" in path else None
    with pytest.raises(OSError):
        atomic_folder.local_copy(folder)
    assert not [*tmp_path.rglob("*.npy")]
    here.refuse = None
    copy = atomic_folder.local_copy(folder)
    found = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert found == {"a.npy": b"one", "b.npy": b"two"}
    here.requests.clear()
    assert atomic_folder.local_copy(folder) == copy and not here.requests


@pytest.mark.slow
def test_texts_of_a_bucket_are_read_as_those_of_a_disk(here):
    here.upload("texts", "all/pos/1.txt", b"Good.")
    here.upload("texts", "all/neg/1.txt", b"Bad.")
    here.upload("texts", "all/lines.tsv.gz", gzip.compress(b"one\ntwo\n"))
    read = list(lines.read_lines("gs://texts/all/lines.tsv.gz"))
    assert read == [(1, "one"), (2, "two")]
    found = texts.read_folders("gs://texts/all")
    expected = [("Bad.", "neg"), ("Good.", "pos")]
    assert [(text["text"], text["label"]) for text in found] == expected
    line = error_line(lambda: [*lines.read_lines("gs://texts/none")])
    assert "gs://texts/none: cannot be read" in line
