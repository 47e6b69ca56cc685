"""Files and folders are there whole or not at all, and --output's target is a file."""

import gzip
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from bert_jax import main
from bert_jax.data import atomic_folder, lines, texts
from bert_jax.data import corpus as corpora
from bert_jax.runtime import failures, storage, terminal
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints
from tests import runs
from tests.fake_bucket import FakeGcs
from tests.micro import error_line
from tests.runs import finish, losses, no_room, wait_until


def write(target):
    with storage.replace_file(target) as opened:
        opened.write("whole")


def test_file_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "target"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), storage.replace_file(target) as opened:
        opened.write("half")
        assert target.read_text() == "before"
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "before"
    write(target)
    assert target.read_text() == "whole"
    before = os.umask(0o027)
    try:
        write(target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o640


def test_link_stays(tmp_path):
    (tmp_path / "link").symlink_to("target")
    storage.write_atomically(tmp_path / "link", "whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "whole"


def test_folder_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "target"
    with pytest.raises(ZeroDivisionError), storage.temporary_folder(target) as new:
        (new / "shard").write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    before = os.umask(0o027)
    try:
        with storage.temporary_folder(target) as new:
            (new / "shard").write_text("whole")
            new.rename(target)
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (target / "shard").read_text() == "whole"
    assert target.stat().st_mode & 0o777 == 0o750


def write_output(place, text="text\n"):
    with storage.replace_file(storage.output_path(str(place))) as file:
        file.write(text)


def test_full_disk_is_named_with_its_file(tmp_path):
    place = tmp_path / "answers.jsonl"
    for whole in (write_output, storage.write_atomically):
        with no_room(100), pytest.raises(OSError, match="File too large") as found:
            whole(place, "x" * 101)  # seen at closing
        said = "File too large; make room there and run the same command again"
        assert failures.describe_failure(found.value) == (2, f"{place}: {said}")
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be_a_file_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to_folder").symlink_to(".")
    (tmp_path / "nowhere").symlink_to("missing/file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "to_folder", "nowhere", "missing/file", ".", "pipe"):
        line = error_line(storage.output_path, str(Path(tmp_path, name)))
        assert "must be a file in an existing folder" in line


def test_progress_gets_its_total_while_rows_are_answered():
    bar = terminal.live_line(False)
    assert bar.total is None
    terminal.count_for(bar, iter("abc"))
    wait_until(lambda: bar.total == 3)


# Files in a bucket: replaced as a whole, and read as texts, corpora and data sets.


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


# Buckets: whole runs against a server that speaks Google Cloud Storage's API.


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def in_bucket(gcs: FakeGcs, micro, corpus, cache):
    """Finishes a run that is all in a bucket. Returns its leading arguments."""
    gcs.upload("bucket", "texts/corpus.txt", corpus.read_bytes())
    arguments = [f"--config={micro}", "--config.corpus.data_dir=gs://bucket/data"]
    arguments += ["--config.checkpoint.save_every=20"]
    arguments += ["--config.corpus.sources=('sentences:gs://bucket/texts/*.txt',)"]
    given = {**gcs.environment, "XDG_CACHE_HOME": str(cache)}
    finish(runs.start(*arguments, "--workdir=gs://bucket/run", **given))
    return arguments


@pytest.mark.usefixtures("one_device")
@pytest.mark.slow
def test_bucket_may_have_all_that_a_run_reads_and_writes(
    here, in_bucket, micro, plain, tmp_path, cache
):
    here.download("bucket", tmp_path)
    copies = cache / "bert_jax" / "buckets" / "bucket"
    for path in copies.rglob("*.npy"):
        stored = tmp_path / path.relative_to(copies)
        assert path.read_bytes() == stored.read_bytes()
    assert {path.parent.name for path in copies.rglob("*.npy")} == {"train", "dev"}
    # The order of the records hangs on the seed alone, so the losses are the disk's.
    assert losses(tmp_path / "run").tolist() == losses(plain).tolist()
    dev = [
        metrics.read_metrics(folder, "dev")[-1] for folder in (tmp_path / "run", plain)
    ]
    assert dev[0] | {"time": 0} == dev[1] | {"time": 0}
    names = {path.name.partition(".")[0] for path in (tmp_path / "run").iterdir()}
    assert names >= {"config", "vocab", "tokenizer", "events"}
    (events,) = (tmp_path / "run").glob("events*")
    assert events.stat().st_size > 1000
    mine, theirs = (f / "predictions" / "dev.jsonl" for f in (tmp_path / "run", plain))
    assert mine.read_bytes() == theirs.read_bytes()

    arguments = [*in_bucket, "--workdir=gs://bucket/run"]
    here.upload("bucket", "in.jsonl", b'{"text": "a [MASK]"}')
    asked = ["--input=gs://bucket/in.jsonl", "--output=gs://bucket/out.jsonl"]
    runs.here(*arguments, "--mode=predict", *asked)
    (answer,) = here.blobs["bucket", "out.jsonl"].content.splitlines()
    assert json.loads(answer)["masks"][0][0]["token"]

    runs.here(*arguments, "--mode=export", f"--output={tmp_path}/hf")
    assert (tmp_path / "hf" / "model.safetensors").exists()

    first = ("--config.init_from=gs://bucket/run", "--config.train.num_steps=1")
    runs.run(micro, tmp_path / "other", *first)
    report = json.loads((tmp_path / "other" / "init_from.json").read_text())
    assert len(report["taken"]) == 30 and not report["initialised"]


ABSTRACT = {"x": jax.ShapeDtypeStruct((3,), jnp.int32)}


@pytest.mark.slow
def test_checkpoint_that_is_half_copied_is_none(here):
    """The run was killed: the file that ends a checkpoint is not there."""
    folder = storage.storage_path("gs://saved/run")
    with Checkpoints(folder, 2) as checkpoints:
        for step in (1, 2):
            checkpoints.save({"params": {"x": jnp.full(3, step)}}, step)
            checkpoints.wait()
    (end,) = (key for key in here.blobs if key[1].endswith("2/commit_success.txt"))
    del here.blobs[end]
    with Checkpoints(folder, 2) as checkpoints:
        params, step = checkpoints.restore_params(ABSTRACT)
    assert step == 1 and params["x"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workdir=az://bucket/run"], ["--workdir=az://bucket/run", "gs://BUCKET/"]),
        (
            ["--mode=export", "--output=gs://bucket/model"],
            ["--output=gs://bucket/model", "copy"],
        ),
    ],
)
def test_storage_of_other_kinds_is_refused(
    arguments, words, micro, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    given = [] if arguments[0].startswith("--workdir") else ["--workdir=run"]
    assert main.main([f"--config={micro}", *given, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and all(word in line for word in words), line
    assert list(tmp_path.iterdir()) == []


def test_bucket_without_its_client_names_the_package(micro, monkeypatch, capsys):
    monkeypatch.setattr(storage.importlib.util, "find_spec", lambda name: None)
    assert main.main([f"--config={micro}", "--workdir=gs://bucket/run"]) == 2
    assert "pip install gcsfs" in capsys.readouterr().err


def test_bucket_that_is_not_ours_is_refused_in_one_line(here, micro, tmp_path, capfd):
    here.refuse = lambda method, url: 403
    arguments = [f"--config={micro}", "--workdir=gs://theirs/run"]
    arguments += [f"--config.corpus.data_dir={tmp_path}/data"]
    assert main.main(arguments) == 2
    err = capfd.readouterr().err.splitlines()
    (line,) = (line for line in err if line.startswith("error: "))
    assert "bucket: " in line and "this machine's access" in line
    assert not any("Traceback" in line for line in err)
