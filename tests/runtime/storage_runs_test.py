"""Buckets: whole runs against a server that speaks Google Cloud Storage's API."""

import json

import jax
import jax.numpy as jnp
import pytest

from bert_jax import main
from bert_jax.runtime import storage
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints
from tests import runs
from tests.fake_bucket import FakeGcs
from tests.runs import finish, losses


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
