"""Which checkpoints stay, what is restored, and what is said while there is time."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax import step
from bert_jax.checkpoint import Checkpoints
from bert_jax.errors import UserError


@pytest.fixture
def state():
    return step.init_state({"w": jnp.arange(4.0)}, optax.adam(0.1))


def test_the_newest_stay_and_every_so_many_for_good(tmp_path, state):
    with Checkpoints(tmp_path, 2, keep_every=20) as checkpoints:
        # 33 is where a signal came.
        for now in (10, 20, 30, 33, 40, 50, 60, 70):
            checkpoints.save(state, now)
        checkpoints.wait()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["20", "40", "60", "70"]


def test_dropping_one_while_it_is_being_written(tmp_path, state):
    with Checkpoints(tmp_path, 3) as checkpoints:
        checkpoints.save(state, 10)
        checkpoints.save(state, 20)
        checkpoints.drop(20)
        checkpoints.drop(15)
        assert checkpoints.latest_step() == 10
        checkpoints.save(state, 20)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["10", "20"]


def test_all_of_the_state_comes_back(tmp_path, state):
    usual = state.usual._replace(
        loss=jnp.float32(1 / 3), steps=jnp.int32(7), recent=jnp.float32(2.5)
    )
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(state._replace(usual=usual), 5)
        checkpoints.wait()
        abstract = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
        )
        restored, now = checkpoints.restore(abstract)
    assert now == int(restored.step) == 5
    for one, other in zip(restored.usual, usual, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(
        *map(jax.tree.leaves, (restored.opt_state, state.opt_state)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_disk_that_will_be_full_is_told_one_checkpoint_before(
    tmp_path, state, monkeypatch, caplog
):
    usage = shutil.disk_usage(tmp_path)
    needed = sum(x.nbytes for x in jax.tree.leaves((state, state.usual)))
    with Checkpoints(tmp_path, 2) as checkpoints:
        for now, free in ((1, 3 * needed), (2, 1.5 * needed)):
            monkeypatch.setattr(
                shutil, "disk_usage", lambda _, free=free: usage._replace(free=free)
            )
            assert "make room" not in caplog.text
            checkpoints.save(state, now)
        assert "not for the next: make room" in caplog.text
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=9))
        with pytest.raises(UserError, match="goes on from step 2"):
            checkpoints.save(state, 3)
