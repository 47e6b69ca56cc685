"""Runs whose weights to evaluate are an average of those that learn."""

import json

import jax
import numpy as np
import optax
import pytest
from optax import contrib

from bert_jax.training.optimizer import OPTIMIZERS, evaluation_params
from bert_jax.workdir import metrics
from tests.runs import here, refused, run, saved

EMA = "--config.optimizer.ema=0.75"
SAVES = (
    "--config.checkpoint.save_every=1",
    "--config.checkpoint.keep_every=1",
    "--config.train.num_steps=4",
    "--config.train.eval_every=2",
)


def scores(workdir):
    return {x["step"]: x["loss"] for x in metrics.read_metrics(workdir, "dev")}


def schedule_free(optimizer, schedule, mask):
    """Schedule-free AdamW (Defazio et al. 2024, arXiv:2405.15682)."""
    rule = optax.adamw(schedule, b1=0.0, weight_decay=0.01, mask=mask)
    return contrib.schedule_free(rule, schedule, b1=optimizer.beta1)


@pytest.mark.parametrize("seeds", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_mean_is_evaluated_and_saved(micro, tmp_path, seeds):
    run(micro, tmp_path, EMA, *SAVES, f"--config.train.seeds={seeds}")
    for step in (2, 3, 4):
        before = saved(tmp_path, step - 1, "params")["params"]
        new = saved(tmp_path, step, "learning_params")["learning_params"]
        wanted = jax.tree.map(lambda x, y: 0.75 * x + 0.25 * y, before, new)
        found = saved(tmp_path, step, "params")["params"]
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8),
            found,
            wanted,
        )
    if seeds == 1:
        out, _ = here(f"--workdir={tmp_path}", "--mode=evaluate")
        assert json.loads(out)["loss"] == pytest.approx(scores(tmp_path)[4], rel=1e-6)


@pytest.mark.slow
def test_a_run_with_a_mean_continues_to_the_bit(micro, tmp_path):
    once, branch = tmp_path / "once", tmp_path / "branch"
    run(micro, once, EMA, *SAVES)
    run(micro, branch, EMA, *SAVES, f"--config.train.branch_from={once}@2")
    for name in ("params", "learning_params", "opt_state"):
        one, other = (saved(folder, 4, name)[name] for folder in (once, branch))
        assert jax.tree.all(jax.tree.map(np.array_equal, one, other))
    assert scores(branch)[4] == scores(once)[4]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_schedule_free_weights_are_its_average(micro, tmp_path, monkeypatch, seeds):
    monkeypatch.setitem(OPTIMIZERS, "schedule_free", schedule_free)
    run(
        *(micro, tmp_path, *SAVES, "--config.optimizer.name=schedule_free"),
        *(f"--config.train.seeds={seeds}", "--config.optimizer.warmup_steps=0"),
    )
    learning = saved(tmp_path, 4, "learning_params")["learning_params"]
    state = saved(tmp_path, 4, "opt_state")["opt_state"]
    (z,) = (x["z"] for x in jax.tree.leaves(state, is_leaf=_has_z) if _has_z(x))
    wanted = jax.tree.map(lambda y, z: (y - 0.1 * z) / 0.9, learning, z)
    found = saved(tmp_path, 4, "params")["params"]
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6),
        found,
        wanted,
    )
    # They are not those that learn.
    assert not jax.tree.all(jax.tree.map(np.allclose, found, learning))


def test_two_averages_are_one_line(micro, tmp_path, monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "schedule_free", schedule_free)
    flags = (EMA, "--config.optimizer.name=schedule_free")
    line = refused(f"--config={micro}", f"--workdir={tmp_path / 'run'}", *flags)
    assert "config.optimizer.ema" in line


def test_average_of_a_part_leaves_the_others():
    free = contrib.schedule_free(optax.sgd(0.1), 0.1, b1=0.9)
    rule = optax.partition(
        {"free": free, "rest": optax.adam(0.1)}, dict(a="free", b="rest")
    )
    params = {"a": np.ones(3, np.float32), "b": np.ones(2, np.float32)}
    state = rule.init(params)
    for _ in range(3):
        updates, state = rule.update(params, state, params)
        params = optax.apply_updates(params, updates)
    found = evaluation_params(state, params)
    np.testing.assert_array_equal(found["b"], params["b"])
    z = state.inner_states["free"].inner_state.z["a"]
    np.testing.assert_allclose(found["a"], (params["a"] - 0.1 * z) / 0.9, rtol=1e-5)


def _has_z(tree):
    return isinstance(tree, dict) and "z" in tree
