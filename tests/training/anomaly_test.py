"""Anomalies: their definition, the step's response, and whole runs that meet them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import anomaly, optimizer, step
from bert_jax.training.step import init_state
from bert_jax.training.transforms import accumulate
from bert_jax.workdir import metrics
from tests.runs import run


def judged(values):
    """Which of (loss, norm) are anomalies, and the running statistics in the end."""
    stats, found = anomaly.RunningStats(), []
    judge = jax.jit(anomaly.detect_anomaly)
    for loss, norm in values:
        bad, stats, notes = judge(stats, jnp.float32(loss), jnp.float32(norm))
        found.append(bool(bad))
        assert float(notes["anomaly"]) == (float(stats.recent) if bad else 0)
    return found, stats


@pytest.mark.parametrize("bad", [(np.nan, 1), (1, np.nan), (np.inf, 1), (2, np.inf)])
def test_anomaly_of_a_number_that_is_not_finite_leaves_no_trace(bad):
    found, stats = judged([(3, 1), bad, bad, (5, 2)])
    assert found == [False, True, True, False]
    _, without = judged([(3, 1), (5, 2)])
    assert float(stats.recent) == pytest.approx(0.99 * (1 + 0.99))
    stats = stats._replace(recent=without.recent)
    assert jax.tree.map(float, stats) == jax.tree.map(float, without)


def test_means_are_of_the_good_steps():
    rng = np.random.default_rng(0)
    values = rng.uniform(1, 2, size=(120, 2))
    values[110, 1], values[112, 0] = np.inf, np.nan
    found, stats = judged(values)
    assert np.flatnonzero(found).tolist() == [110, 112]
    good = np.delete(values, [110, 112], axis=0)
    weights = 0.99 ** np.arange(len(good))[::-1]
    means = weights @ good / weights.sum()
    corrected = np.array([stats.loss, stats.grad_norm]) / (1 - 0.99 ** len(good))
    np.testing.assert_allclose(corrected, means, rtol=1e-4)
    assert int(stats.steps) == 118


@pytest.mark.parametrize("seeds", [1, 2])
def test_anomaly_changes_nothing_but_the_counters(seeds):
    optimizer = optax.adam(0.1)

    def loss(params, batch, key):
        return {"squares": jnp.sum(batch["x"] * params["w"] ** 2)}

    def one(state, batch):
        weights = {"squares": jnp.asarray(1.0)}
        gradient = accumulate(loss, lambda batch: weights, 1)
        given = (state, batch, jax.random.key(0), 0.1)
        return step.train_step(*given, gradient, optimizer)

    take = jax.jit(jax.vmap(one))
    params = {"w": jnp.tile(jnp.array([0.5, -1.0]), (seeds, 1))}
    state = jax.vmap(lambda p: init_state(p, optimizer))(params)
    good = {"x": np.ones((seeds, 2), np.float32)}
    bad = {"x": np.ones((seeds, 2), np.float32)}
    bad["x"][0, 0] = np.nan
    state, _ = take(state, good)
    after, notes = take(state, bad)
    np.testing.assert_allclose(notes["anomaly"], [1, 0][:seeds])
    assert after.step.tolist() == [2] * seeds
    assert after.running_stats.steps.tolist() == [1, 2][:seeds]
    learnt = ((x.params, x.opt_state) for x in (after, state))
    for new, old in zip(*map(jax.tree.leaves, learnt), strict=True):
        if new.dtype == jnp.float32:
            assert np.isfinite(new).all()
            np.testing.assert_array_equal(new[0], old[0])
    assert after.opt_state[0].count.tolist() == [2] * seeds
    # The other seed has learnt, as by itself.
    assert (after.params["w"] != params["w"]).any(axis=1).all()
    if seeds == 2:
        assert (after.params["w"][1] != state.params["w"][1]).all()


@pytest.fixture
def spoil(monkeypatch):
    """Makes a step's batch give a loss that is not finite."""
    batches = Pretraining.batches

    def choose(step):
        def spoilt(self, now, rows, seed):
            for index, batch in enumerate(batches(self, now, rows, seed), start=now):
                if index == step:
                    weights = np.full_like(batch["masked_lm_weights"], np.nan)
                    batch = {**batch, "masked_lm_weights": weights}
                yield batch

        monkeypatch.setattr(Pretraining, "batches", spoilt)

    return choose


def saved(workdir):
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.mark.slow
def test_run_stops_with_one_line_and_goes_on_if_asked_to_skip(micro, tmp_path, spoil):
    workdir = tmp_path / "run"
    spoil(13)
    _, err = run(micro, workdir, status=2)
    notes = err.splitlines()[-1]
    assert notes.startswith("error: step 14: loss nan") and "usually" in notes
    assert "batch_at(config, 13)" in notes and "Traceback" not in err
    assert saved(workdir) == [10]
    (found,) = metrics.read_metrics(workdir, "anomaly")
    assert found["step"] == 14 and found["batch"] == 13
    run(micro, workdir, "--config.train.on_anomaly=skip")
    train = metrics.read_metrics(workdir, "train")
    bad = [line["step"] for line in train if not np.isfinite(line["loss"])]
    assert len(train) == 20 and bad == [14]


@pytest.mark.parametrize("passes_on", [True, False])
def test_moments_stay_whether_their_optimizer_chose_or_not(passes_on):
    """One that does not hand `unless` on leaves the choice to the step."""
    adam = optimizer.scale_by_bert_adam(0.9, 0.999, 1e-6)
    if not passes_on:
        adam = optax.GradientTransformation(adam.init, functools.partial(adam.update))
    params, grads = {"w": jnp.ones(3)}, {"w": jnp.array([1.0, jnp.nan, 2.0])}
    before = adam.init(params)._replace(mu={"w": jnp.arange(3.0)})

    def after(bad, grads):
        unless = anomaly.SelectUnlessBad(bad)
        update = optax.with_extra_args_support(adam).update
        _, state = update(grads, before, params, unless=unless)
        return unless(state, before)

    same = jax.jit(after)(True, grads)
    jax.tree.map(np.testing.assert_array_equal, same, before)
    new = jax.jit(after)(False, {"w": jnp.ones(3)})
    np.testing.assert_allclose(new.mu["w"], 0.9 * np.arange(3) + 0.1, rtol=1e-6)
    np.testing.assert_allclose(new.nu["w"], 0.001 * np.ones(3), rtol=1e-4)


def test_moments_are_computed_once_on_a_cpu():
    """The parameters' loop reads them: otherwise it reads the gradient and both old
    moments, and computes all of it again."""
    adam = optimizer.scale_by_bert_adam(0.9, 0.999, 1e-6)
    params = {"w": jnp.ones(3)}

    def after(bad, grads, state):
        return adam.update(grads, state, params, unless=anomaly.SelectUnlessBad(bad))

    lowered = jax.jit(after).lower(False, params, adam.init(params))
    (barrier,) = [x for x in lowered.as_text().split("\n") if "optimization_barr" in x]
    assert barrier.count("tensor<3xf32>") == 2
