"""Which checkpoints stay, which are restored, and timely messages."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from absl import logging as absl_logging
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.errors import UserError
from bert_jax.training.step import init_state
from bert_jax.workdir.checkpoint import Checkpoints, has_checkpoint
from tests.runs import no_room


@pytest.fixture
def eight_devices():
    return Mesh(jax.devices(), ("data",))


@pytest.fixture
def state():
    return init_state({"w": jnp.arange(4.0)}, optax.adam(0.1))


@pytest.mark.slow
def test_newest_stay_and_every_so_many_for_good(tmp_path, state):
    with Checkpoints(tmp_path, 2, keep_every=20) as checkpoints:
        # 33 is where a signal came.
        for now in (10, 20, 30, 33, 40, 50, 60, 70):
            checkpoints.save(state.items(), now)
        checkpoints.wait()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["20", "40", "60", "70"]


def test_checkpoint_gives_back_all_of_the_state(tmp_path, state):
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


def test_changed_byte_is_noticed(tmp_path, eight_devices):
    """Also where the array was on another mesh: TensorStore reads other numbers."""
    rows = NamedSharding(eight_devices, PartitionSpec("data"))
    columns = NamedSharding(eight_devices, PartitionSpec(None, "data"))
    array = jax.random.normal(jax.random.key(0), (512, 64))
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save({"params": {"w": jax.device_put(array, rows)}}, 5)
    abstract = {"w": jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=columns)}
    with Checkpoints(tmp_path, None) as reader:
        np.testing.assert_array_equal(reader.restore_params(abstract)[0]["w"], array)
    path = max(tmp_path.rglob("d/*"), key=lambda path: path.stat().st_size)
    content, said = path.read_bytes(), ""
    for place in range(0, len(content), len(content) // 9):
        changed = bytes([content[place] ^ 1])
        path.write_bytes(content[:place] + changed + content[place + 1 :])
        with Checkpoints(tmp_path, None) as reader:
            try:
                found = reader.restore_params(abstract)[0]["w"]
            except UserError as error:
                said += str(error)
            else:  # TensorStore does not read that byte
                np.testing.assert_array_equal(found, array)
    assert "no checkpoint can be read (5: params/w float32 is not what was" in said


def numbered(state, now):
    """Parameters that tell the step they were saved at."""
    return state._replace(params={"w": jnp.full(4, float(now))})


@pytest.mark.slow
def test_reader_leaves_a_damaged_checkpoint_where_it_is(tmp_path, state):
    abstract = jax.eval_shape(lambda: state.params)
    with Checkpoints(tmp_path, 2) as live:
        live.save(numbered(state, 1).items(), 1)
        live.save(numbered(state, 2).items(), 2)
    for path in (tmp_path / "checkpoints" / "2").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with Checkpoints(tmp_path, None) as reader:
        params, now = reader.restore_params(abstract)
    assert now == 1 and params["w"][0] == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_log_of_a_program_that_saves_checkpoints_is_not_silenced(tmp_path, state):
    verbosity = absl_logging.get_verbosity()  # an earlier test may have lowered it
    absl_logging.set_verbosity(absl_logging.INFO)
    try:
        with Checkpoints(tmp_path, 2) as checkpoints:
            checkpoints.save(state.items(), 1)
        assert absl_logging.get_verbosity() == absl_logging.INFO
    finally:
        absl_logging.set_verbosity(verbosity)


def test_full_disk_leaves_no_half_written_checkpoint(tmp_path, state):
    with Checkpoints(tmp_path, 2) as checkpoints:
        checkpoints.save(state.items(), 1)
    with (
        pytest.raises(UserError, match=r"a checkpoint cannot be written: .*too large"),
        no_room(),  # until the writers in the background have ended, too
        Checkpoints(tmp_path, 2) as checkpoints,
    ):
        checkpoints.save(state.items(), 2)
        checkpoints.wait()
    with Checkpoints(tmp_path, 2) as checkpoints:
        assert checkpoints.latest_step() == 1
        checkpoints.save(state.items(), 2)
    assert has_checkpoint(tmp_path)
