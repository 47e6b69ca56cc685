"""Two runs in one work directory: the second names the first and changes nothing."""

import json
import os
import platform
import signal
import threading
import time

import pytest
from fake_gcs import serving
from runs import ready

from bert_jax import main
from bert_jax.errors import UserError
from bert_jax.runtime import signals, storage, temporary
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import lock as workdir_lock

HOLDER = """
import sys, time
from bert_jax.runtime import storage
from bert_jax.workdir import lock as workdir_lock
with workdir_lock.locked(storage.path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def run(micro):
    bring_back = signals.remember()
    config = f"--config={micro}"
    yield lambda folder, *flags: main.main([config, f"--workdir={folder}", *flags])
    bring_back()


def content(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_second_run_is_refused_and_a_killed_one_is_followed(run, tmp_path, capfd):
    folder = tmp_path / "run"
    with ready(HOLDER, folder) as process:
        before = content(folder)
        assert run(folder) == 2
        assert content(folder) == before
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(
            f"error: --workdir={folder}: process {process.pid} on host "
            f"{platform.node()} has been training there since 20"
        )
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (folder / ".lock").exists()
        assert run(folder) == 0
    assert not (folder / ".lock").exists()
    assert (folder / "checkpoints" / "20").exists()


def test_a_refused_run_leaves_no_folder(run, tmp_path, capfd):
    folder = tmp_path / "new" / "run"
    assert run(folder, "--config.init_from=nowhere") == 2
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)
    assert run(folder, "--config.init_from=nowhere") == 2
    assert list(folder.iterdir()) == []
    assert capfd.readouterr().err.count("error: ") == 2


def test_what_is_no_folder_cannot_be_held(run, tmp_path, capfd):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        assert run(folder) == 2
        assert f"error: --workdir={folder}: not a folder" in capfd.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_where_files_cannot_be_locked_a_run_warns(tmp_path, monkeypatch, caplog):
    def lockf(*_):
        raise OSError(temporary.NO_LOCKS[0], "No locks available")

    monkeypatch.setattr(temporary.fcntl, "lockf", lockf)
    with workdir_lock.locked(tmp_path):
        (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}: its file system has no locks")


def test_a_run_killed_while_it_was_archived_is_archived(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").write_text("lines")
    (tmp_path / "config.json").write_text("{}")
    aside = tmp_path / ".collapsed"
    aside.mkdir()
    (tmp_path / "checkpoints").rename(aside / "checkpoints")
    workdir.finish_archiving(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"collapsed_0", "config.json"}
    names = {path.name for path in (tmp_path / "collapsed_0").iterdir()}
    assert names == {"checkpoints", "metrics.jsonl"}
    workdir.finish_archiving(tmp_path)
    assert workdir.archived_runs(tmp_path) == 1


@pytest.fixture
def bucket(monkeypatch):
    """A server; its clients' settings are those of this process."""
    monkeypatch.setattr(workdir_lock, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(workdir_lock, "STALE_SECONDS", 0.5)
    with serving() as fake:
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)
        yield fake


FOLDER = "gs://bucket/runs/one"


def holder_of(fake):
    return json.loads(fake.blobs["bucket", "runs/one/.lock"].content)


@pytest.mark.slow
def test_in_a_bucket_the_living_are_respected_and_the_dead_followed(bucket, caplog):
    folder = storage.path(FOLDER)
    with workdir_lock.locked(folder):
        mine = holder_of(bucket)
        assert (mine["host"], mine["pid"]) == (platform.node(), os.getpid())
        with (
            pytest.raises(UserError, match=f"process {os.getpid()} on host"),
            workdir_lock.locked(folder),
        ):
            pytest.fail("held twice")
    assert bucket.names("bucket") == []

    with ready(HOLDER, FOLDER, **bucket.environment) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        caplog.clear()
        # On this machine it is known to have ended: nothing is waited for.
        with workdir_lock.locked(folder):
            assert holder_of(bucket)["pid"] == os.getpid()
    assert caplog.messages == []
    assert bucket.names("bucket") == []


@pytest.mark.slow
def test_in_a_bucket_a_holder_elsewhere_is_waited_for(bucket, caplog):
    elsewhere = {"host": "far", "pid": 7, "machine": "another", "since": "2026"}
    bucket.upload("bucket", "runs/one/.lock", json.dumps(elsewhere).encode())
    start = time.monotonic()
    with workdir_lock.locked(storage.path(FOLDER)):
        assert time.monotonic() - start >= workdir_lock.STALE_SECONDS
        assert holder_of(bucket)["pid"] == os.getpid()
    (message,) = caplog.messages
    assert "process 7 on host far may be training there" in message

    bucket.upload("bucket", "runs/one/.lock", b"damaged")
    with workdir_lock.locked(storage.path(FOLDER)):
        assert holder_of(bucket)["pid"] == os.getpid()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_in_a_bucket_who_was_taken_for_dead_ends_at_once(bucket, monkeypatch, capfd):
    ended = threading.Event()

    def end(status):
        assert status == 2
        ended.set()
        raise SystemExit

    monkeypatch.setattr(os, "_exit", end)
    with workdir_lock.locked(storage.path(FOLDER)):
        bucket.upload("bucket", "runs/one/.lock", b'{"pid": 7, "token": "other"}')
        assert ended.wait(10)
    assert "another process has taken it over" in capfd.readouterr().err
    # And the other's lock is not deleted.
    assert holder_of(bucket)["pid"] == 7


@pytest.mark.slow
def test_in_a_bucket_one_of_two_that_start_at_once_holds_it(bucket, monkeypatch):
    lock = workdir_lock._Object(storage.path(FOLDER))
    replace = lock._replace

    def later(**options):
        if "runs/one/.lock" not in bucket.names("bucket"):
            bucket.upload("bucket", "runs/one/.lock", b'{"pid": 7, "host": "far"}')
        return replace(**options)

    monkeypatch.setattr(lock, "_replace", later)
    with pytest.raises(UserError, match="process 7 on host far"), lock:
        pytest.fail("held by two")


@pytest.mark.slow
def test_a_whole_bucket_is_held(bucket):
    with workdir_lock.locked(storage.path("gs://bucket")):
        assert ".lock" in bucket.names("bucket")
    assert ".lock" not in bucket.names("bucket")


@pytest.mark.slow
def test_in_a_bucket_a_passing_failure_is_no_end(bucket):
    folder = storage.path(FOLDER)
    with workdir_lock.locked(folder):
        generation = bucket.blobs["bucket", "runs/one/.lock"].generation
        bucket.refuse = lambda method, url: 503 if method == "POST" else None
        time.sleep(3 * workdir_lock.BEAT_SECONDS)
        assert bucket.blobs["bucket", "runs/one/.lock"].generation == generation
        bucket.refuse = None
        end = time.monotonic() + 10
        while bucket.blobs["bucket", "runs/one/.lock"].generation == generation:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert bucket.names("bucket") == []
