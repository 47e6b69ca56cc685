"""The guarantees of a run of any task: the same on any devices and after any stop.

A task keeps it by its batches and its carry. The loop keeps it by `Session`, whose
promise whole runs check: one here, others in gates/gates_test.py.
"""

import itertools
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from bert_jax.families.elmo import __main__ as elmo_main
from bert_jax.families.elmo.pretraining import Elmo
from bert_jax.families.elmo.step import CarriedStep
from bert_jax.tasks.task import Task
from bert_jax.training import sharding
from bert_jax.training.seeds import Seeds
from bert_jax.training.step import Step, TrainState
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints
from tests import contract_runs
from tests.contract_tasks import CONTRACT, STEPS, create
from tests.runs import here, losses

ALL = slice(None)
TURNS = np.array([0, 1, 4, 5]), np.array([2, 3, 6, 7])
SPLIT = {"mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2}
# What must not matter either.
VARIANTS = {"mesh.optimizer": "zero1", "model.remat": "full"}


def assert_same(one, two) -> None:
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].dtype == two[name].dtype
        np.testing.assert_array_equal(one[name], two[name], name)


@pytest.fixture
def make(request, tmp_path, monkeypatch):
    """Creates the task of a kind. Each call reads its data again."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, **fields) -> Task:
        size = {"train.num_steps": STEPS, "train.batch_size": 8}
        return create(name, {**size, **fields})

    return make


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTRACT)
def test_batches_go_on_at_any_step(make, name):
    """After a restart, too: across epochs, documents and phases."""
    straight = list(itertools.islice(make(name).batches(0, ALL, 0), STEPS))
    assert len(straight) == STEPS
    again = make(name)
    for step, expected in enumerate(straight):
        assert_same(next(again.batches(step, ALL, 0)), expected)
    others = next(again.batches(0, ALL, 1))
    first = straight[0]
    assert any(not np.array_equal(others[name], first[name]) for name in others)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTRACT)
def test_rows_of_hosts_make_up_the_batch(make, name):
    """Of two hosts whose rows follow each other, and of two that take turns."""
    task = make(name)
    for step in (0, STEPS - 1):
        whole = next(task.batches(step, ALL, 0))
        for one, two in ((slice(0, 4), slice(4, 8)), TURNS):
            parts = [next(task.batches(step, rows, 0)) for rows in (one, two)]
            for column, expected in whole.items():
                quarters = np.split(expected, 4)
                if not isinstance(one, slice):
                    quarters = [quarters[place] for place in (0, 2, 1, 3)]
                found = np.concatenate([part[column] for part in parts])
                np.testing.assert_array_equal(found, np.concatenate(quarters), column)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTRACT)
def test_seeds_side_by_side_have_their_own_batches(make, name):
    """Padded to the longest."""
    task = make(name, **{"train.seeds": 2})
    task.fill_in({"seed": 3})
    seeds = Seeds(task.config)
    for step in (0, STEPS - 1):
        together = next(seeds.batches(task, step, ALL))
        for place, number in enumerate((3, 4)):
            own = next(task.batches(step, ALL, number))
            assert own.keys() == together.keys()
            for column, rows in together.items():
                within = (place, *map(slice, own[column].shape))
                np.testing.assert_array_equal(rows[within], own[column], column)
                rest = np.delete(rows[place], range(own[column].shape[-1]), -1)
                assert (rest == task.padding.get(column, 0)).all()


# Each kind of loss once: compiling it for one device and for eight takes its time.
LOSSES = {"packed_in_two_phases": VARIANTS, "replaced_tokens": {}, "elmo": {}}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_eight_devices_take_the_steps_of_one(make, name):
    """The same losses, gradients and carry, with dropout or tokens that are drawn."""
    *one, first = two_steps(make(name), jax.devices()[:1])
    *eight, _ = two_steps(make(name, **SPLIT, **LOSSES[name]), jax.devices(), first)
    for before, after in zip(one[0], eight[0], strict=True):
        assert before.keys() == after.keys() and before["loss"] > 0
        for score in before:
            np.testing.assert_allclose(after[score], before[score], rtol=1e-4)
    found = dict(jax.tree.leaves_with_path(eight[1]))
    largest = max(np.abs(x).max() for x in jax.tree.leaves(one[1]["moments"]))
    for path, expected in jax.tree.leaves_with_path(one[1]):
        # What has no gradient, such as the bias of keys, is rounding of the others.
        limit = 1e-4 * np.abs(expected).max() + 1e-6 * largest
        assert np.abs(found[path] - expected).max() <= limit, path


def two_steps(task: Task, devices, first=None) -> tuple[list, dict, TrainState]:
    """The metrics of two steps, and the optimizer's state and carry after them.

    From the state `first`, or a new one, which is returned too. That a new one is the
    same on a mesh: training/step_test.py.
    """
    mesh = sharding.make_mesh(task.config, devices=devices)
    program = (CarriedStep if isinstance(task, Elmo) else Step)(task, mesh)
    first = first or jax.device_get(program.first_state())
    state = jax.tree.map(
        lambda x, there: jax.device_put(x, there.sharding), first, program.abstract
    )
    metrics, compiled = [], None
    for step, batch in enumerate(itertools.islice(task.batches(0, ALL, 0), 2)):
        size = task.phase_at(step).batch_size
        placed = sharding.place_batch(batch, mesh, size, 1)
        compiled = compiled or program.trace(state, placed, 1).lower().compile()
        rate = np.float32(1e-3)
        state, after = compiled(state, placed, program.seeds.array, rate, {})
        metrics.append(jax.device_get(after))
    kept = {"moments": state.opt_state, "carry": getattr(state, "carry", ())}
    return metrics, jax.device_get(kept), first


@pytest.fixture
def straight(once, corpus):
    """A finished run on one device. ELMo's carries a state from step to step. The gates
    have runs without one."""
    return contract_runs.elmo(once, corpus)


@pytest.mark.slow
def test_run_resumes_with_its_carry(straight, tmp_path):
    """To the last bit: losses, scores, and everything that is saved.

    Its last checkpoint is gone, as after a kill: gates/gates_test.py kills runs.
    """
    workdir = tmp_path / "run"
    shutil.copytree(straight.workdir, workdir)
    shutil.rmtree(workdir / "checkpoints" / "20")
    given = (f"--config={straight.config}", f"--workdir={workdir}")
    _, err = here(*given, program=elmo_main.run)
    assert "resuming at step 10 of" in err
    np.testing.assert_array_equal(losses(workdir), losses(straight.workdir))
    assert dev_scores(workdir) == dev_scores(straight.workdir)
    (step, found), (same, expected) = saved(workdir), saved(straight.workdir)
    assert step == same == len(losses(workdir)) and "carry" in found
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def dev_scores(workdir):
    lines = metrics.read_metrics(workdir, "dev")
    return [{k: x for k, x in line.items() if k != "time"} for line in lines]


def saved(workdir):
    """Everything in the last checkpoint."""
    with Checkpoints(workdir, None) as checkpoints:
        step = checkpoints.latest_step()
    folder = workdir / "checkpoints" / str(step)
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    read = ocp.StandardCheckpointer().restore
    return step, {name: read(folder / name) for name in sorted(names)}
