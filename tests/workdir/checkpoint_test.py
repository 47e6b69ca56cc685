"""Which checkpoints stay, what is restored, and what is said while there is time."""

import os
import re
import shutil
import sys
import threading
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from runs import LIMIT

from bert_jax.errors import UserError
from bert_jax.runtime import storage
from bert_jax.training import step
from bert_jax.workdir.checkpoint import Checkpoints


@pytest.fixture
def state():
    return step.init_state({"w": jnp.arange(4.0)}, optax.adam(0.1))


@pytest.mark.slow
def test_the_newest_stay_and_every_so_many_for_good(tmp_path, state):
    with Checkpoints(tmp_path, 2, keep_every=20) as checkpoints:
        # 33 is where a signal came.
        for now in (10, 20, 30, 33, 40, 50, 60, 70):
            checkpoints.save(state.items(), now)
        checkpoints.wait()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["20", "40", "60", "70"]


def test_dropping_one_while_it_is_being_written(tmp_path, state):
    with Checkpoints(tmp_path, 3) as checkpoints:
        checkpoints.save(state.items(), 10)
        checkpoints.save(state.items(), 20)
        checkpoints.drop(20)
        checkpoints.drop(15)
        assert checkpoints.latest_step() == 10
        checkpoints.save(state.items(), 20)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["10", "20"]


def test_all_of_the_state_comes_back(tmp_path, state):
    stats = state.running_stats._replace(
        loss=jnp.float32(1 / 3), steps=jnp.int32(7), recent=jnp.float32(2.5)
    )
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(state._replace(running_stats=stats).items(), 5)
        checkpoints.wait()
        abstract = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
        )
        items, now = checkpoints.restore(abstract.items())
        restored = abstract.restored(items, now)
    assert now == int(restored.step) == 5
    for one, other in zip(restored.running_stats, stats, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(
        *map(jax.tree.leaves, (restored.opt_state, state.opt_state)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_disk_that_will_be_full_is_reported_one_checkpoint_before(
    tmp_path, state, monkeypatch, caplog
):
    usage = shutil.disk_usage(tmp_path)
    needed = sum(x.nbytes for x in jax.tree.leaves((state, state.running_stats)))
    with Checkpoints(tmp_path, 2) as checkpoints:
        for now, free in ((1, 3 * needed), (2, 1.5 * needed)):
            monkeypatch.setattr(
                shutil, "disk_usage", lambda _, free=free: usage._replace(free=free)
            )
            assert "make room" not in caplog.text
            checkpoints.save(state.items(), now)
        assert "not for the next: make room" in caplog.text
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=9))
        with pytest.raises(UserError, match="resumes from step 2"):
            checkpoints.save(state.items(), 3)


@pytest.mark.parametrize("name", ["5", "9" * 20])
def test_a_step_that_the_run_does_not_have(tmp_path, state, name):
    with Checkpoints(tmp_path, 3) as checkpoints:
        checkpoints.save(state.items(), 4)
        checkpoints.wait()
        checkpoints.check(4)
        with pytest.raises(UserError, match="/4: not a checkpoint of this run, which"):
            checkpoints.check(3)
    folder = tmp_path / "checkpoints"
    shutil.copytree(folder / "4", folder / name)
    with (
        Checkpoints(tmp_path, 3) as checkpoints,
        pytest.raises(UserError, match=f"/{name}: not a checkpoint of .* has 4 step"),
    ):
        checkpoints.check(4)


def numbered(state, now):
    """Parameters that tell the step they were saved at."""
    return state._replace(params={"w": jnp.full(4, float(now))})


@pytest.mark.slow
def test_a_reader_follows_a_run_that_deletes_what_it_had_listed(tmp_path, state):
    abstract = jax.eval_shape(lambda: state.params)
    with Checkpoints(tmp_path, 1) as live:
        live.save(numbered(state, 1).items(), 1)
        live.wait()
        with Checkpoints.of_another(tmp_path) as reader:
            assert reader.latest_step() == 1
            live.save(numbered(state, 2).items(), 2)
            live.wait()
            params, now = reader.restore_params(abstract)
    assert now == 2 and params["w"][0] == 2


@pytest.mark.slow
def test_readers_beside_a_run_that_saves_all_the_time(tmp_path, state):
    abstract = jax.eval_shape(lambda: state.params)
    ended = threading.Event()

    def save():
        now = 1
        with Checkpoints(tmp_path, 1) as live:
            while not ended.is_set():
                live.save(numbered(state, now).items(), now)
                live.wait()
                first.set()
                now += 1

    first = threading.Event()
    thread = threading.Thread(target=save)
    thread.start()
    try:
        assert first.wait(LIMIT)
        found = []
        for _ in range(15):
            with Checkpoints.of_another(tmp_path) as reader:
                params, now = reader.restore_params(abstract)
            assert params["w"][0] == now
            found.append(now)
    finally:
        ended.set()
        thread.join()
    assert found == sorted(found) and found[-1] > found[0]


def test_a_file_that_comes_and_goes_is_no_pipe(tmp_path):
    """As the temporary files of a run that saves, seen by a reader of its folder."""
    path, ended = tmp_path / "file", threading.Event()

    def come_and_go():
        while not ended.is_set():
            path.touch()
            path.unlink()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(20_000):
            storage.require_file(path)
    finally:
        ended.set()
        thread.join()
    os.mkfifo(path)
    with pytest.raises(OSError, match="a pipe or a device"):
        storage.require_file(path)


@pytest.mark.slow
def test_a_reader_leaves_a_damaged_checkpoint_where_it_is(tmp_path, state):
    abstract = jax.eval_shape(lambda: state.params)
    with Checkpoints(tmp_path, 2) as live:
        live.save(numbered(state, 1).items(), 1)
        live.save(numbered(state, 2).items(), 2)
    for path in (tmp_path / "checkpoints" / "2").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with Checkpoints.of_another(tmp_path) as reader:
        params, now = reader.restore_params(abstract)
    assert now == 1 and params["w"][0] == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_checkpoint_of_the_year_10000_is_one_line(tmp_path, state, read_only):
    with Checkpoints(tmp_path, 2) as live:
        live.save(state.items(), 1)
    about = tmp_path / "checkpoints" / "1" / "_CHECKPOINT_METADATA"
    of_time = r'(commit_timestamp_nsecs": *)\d+'
    about.write_text(
        re.sub(of_time, rf"\g<1>{253402300800 * 10**9}", about.read_text())
    )
    with pytest.raises(UserError, match=r"_CHECKPOINT_METADATA cannot be read .*year"):
        Checkpoints(tmp_path, 2, read_only=read_only)


def test_writes_that_fail_late_are_not_reported_again(tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    complaint = SimpleNamespace(exc_value=RuntimeError("Event loop is closed"))
    other = SimpleNamespace(exc_value=RuntimeError("something else"))
    with pytest.raises(OSError), Checkpoints(tmp_path, 1):
        raise OSError("a full disk")
    sys.unraisablehook(complaint)
    sys.unraisablehook(other)
    assert reported == [other]
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    with Checkpoints(tmp_path, 1):
        sys.unraisablehook(complaint)
    sys.unraisablehook(complaint)
    assert reported == [other, complaint]


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path, state):
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save_params(state.params, 1)
    path = tmp_path / "checkpoints" / "1" / "_CHECKPOINT_METADATA"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="_CHECKPOINT_METADATA: a pipe"):
        Checkpoints.of_another(tmp_path)


def test_a_folder_that_can_hold_no_checkpoint_is_refused_before_training(tmp_path):
    with pytest.raises(UserError, match="backslash"):
        Checkpoints(tmp_path / "a\\b", 1)
    assert not list(tmp_path.iterdir())
