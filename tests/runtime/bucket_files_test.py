"""Files in a bucket: replaced as a whole, and read as texts, corpora and data sets."""

import gzip

import pytest

from bert_jax.data import corpus as corpora
from bert_jax.data import lines, texts
from bert_jax.errors import UserError
from bert_jax.runtime import failures, storage


@pytest.mark.slow
@pytest.mark.parametrize("place", ["gs://small/file.txt", "file.txt"])
def test_a_file_is_replaced_whole_or_not_at_all(place, here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = storage.storage_path(place)
    with storage.replace_file(path) as file:
        file.write("one\n")
    with pytest.raises(ZeroDivisionError), storage.replace_file(path) as file:
        file.write(f"half of {1 / 0}")
    assert path.read_bytes() == b"one\n"
    with storage.replace_file(path) as file:
        file.write("two\n")
    assert path.read_bytes() == b"two\n"
    left = here.names("small") or [path.name for path in tmp_path.iterdir()]
    assert left == ["file.txt"]
    for name in here.names("small"):
        del here.blobs["small", name]


def test_what_cannot_be_written_is_said(here):
    here.refuse = lambda method, url: 403 if method == "POST" else None
    with pytest.raises(OSError, match="refused") as caught:
        storage.write_atomically(storage.storage_path("gs://bucket/file"), "text")
    assert failures.describe_failure(caught.value)[1].startswith("bucket: ")


@pytest.mark.slow
def test_a_corpus_in_a_bucket_is_identified_by_its_versions(here):
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


def test_a_file_of_many_lines_is_read_with_few_requests(here):
    text = "a line of some length\n" * 100_000
    here.upload("long", "lines.txt", text.encode())
    here.requests.clear()
    read = lines.read_lines("gs://long/lines.txt")
    assert sum(len(line) + 1 for _, line in read) == len(text)
    assert here.requests.total() <= 6


@pytest.mark.slow
def test_texts_of_a_bucket_are_read_as_those_of_a_disk(here):
    here.upload("texts", "all/pos/1.txt", b"Good.")
    here.upload("texts", "all/neg/1.txt", b"Bad.")
    here.upload("texts", "all/lines.tsv.gz", gzip.compress(b"one\ntwo\n"))
    read = list(lines.read_lines("gs://texts/all/lines.tsv.gz"))
    assert read == [(1, "one"), (2, "two")]
    found = texts.read_folders("gs://texts/all")
    assert [(text["text"], text["label"]) for text in found] == [
        ("Bad.", "neg"),
        ("Good.", "pos"),
    ]
    with pytest.raises(UserError, match="gs://texts/none: cannot be read"):
        list(lines.read_lines("gs://texts/none"))
