"""ELMo's loss, its gradient, its carry and its scores against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.families.elmo import sampled_softmax
from bert_jax.families.elmo.pretraining import Elmo
from configs import elmo as elmo_config
from tests.close import GRADIENT_TERMS, assert_close
from tests.micro import initial_params

NAMES = ("", "_backward")


def make_task(**fields):
    config = elmo_config.get_config("tiny")
    config.model.hidden_size, config.model.intermediate_size = 4, 6
    config.model.hidden_dropout_prob = 0.0
    config.tokenizer.vocab_size = 20
    config.task.update({"filters": ("1:3", "2:4"), "max_characters": 6, "unroll": 5})
    config.task.fresh = 0.0
    config.train.batch_size = 2
    config.update_from_flattened_dict(fields)
    return Elmo(config)


def batch_of(rows=2, length=5):
    rng = np.random.default_rng(0)
    batch = {"input_ids": jnp.zeros((rows, length), jnp.int32)}
    for name in NAMES:
        ids = rng.integers(1, 262, (rows, length, 6))
        batch[f"characters{name}"] = jnp.asarray(ids, jnp.int32)
        targets = rng.integers(0, 20, (rows, length))
        batch[f"targets{name}"] = jnp.asarray(targets, jnp.int32)
    return batch


def params_of(task, seed=0):
    return initial_params(task.init_params, seed)


def hidden_of(task, params, batch, carry=None):
    chars = [batch[f"characters{name}"] for name in NAMES]
    return jax.jit(task.model.apply)({"params": params["elmo"]}, *chars, carry)


@jax.jit
def full(params, hidden, batch):
    """Cross entropies over the whole vocabulary, [directions, rows, words]."""
    found = []
    for direction, name in enumerate(NAMES):
        softmax = params["softmax"]
        logits = hidden[direction] @ softmax["kernel"].T + softmax["bias"]
        log = jax.nn.log_softmax(logits)
        targets = batch[f"targets{name}"][..., None]
        found.append(-jnp.take_along_axis(log, targets, axis=-1)[..., 0])
    return jnp.stack(found)


@pytest.mark.slow
def test_loss_is_half_of_both_directions_and_the_state_goes_on():
    task, batch = make_task(), batch_of()
    params, carry = params_of(task), task.first_carry()
    assert {k: v.shape for k, v in carry.items()} == {
        **{"cell_0": (2, 2, 6), "hidden_0": (2, 2, 4)},
        **{"cell_1": (2, 2, 6), "hidden_1": (2, 2, 4)},
    }
    weight = task.loss_weights(batch)["lm_loss"]
    step = jax.jit(task.carried_loss)
    for _ in range(2):
        sums, after = step(params, batch, jax.random.key(0), carry)
        found, expected_after = hidden_of(task, params, batch, carry)
        each = full(params, found[-1], batch)
        half = 0.5 * (each[0].mean() + each[1].mean())
        assert float(sums["lm_loss"] / weight) == pytest.approx(float(half), rel=1e-5)
        for name, value in after.items():
            assert_close(value, expected_after[name])
        assert any(np.abs(after[n] - carry[n]).max() > 1e-3 for n in after)
        carry = after


@pytest.mark.slow
def test_rows_begin_afresh_as_often_as_asked_for():
    batch, key = batch_of(), jax.random.key(0)
    task, always = make_task(), make_task(**{"task.fresh": 1.0})
    params = params_of(task)
    carry = jax.tree.map(lambda x: x + 0.5, dict(task.first_carry()))
    fresh, _ = jax.jit(always.carried_loss)(params, batch, key, carry)
    first = jax.jit(task.loss)(params, batch, key)["lm_loss"]
    assert float(fresh["lm_loss"]) == pytest.approx(float(first), rel=1e-6)
    kept, _ = jax.jit(task.carried_loss)(params, batch, key, carry)
    assert abs(float(kept["lm_loss"]) - float(first)) > 1e-3
    some = make_task(**{"task.fresh": 0.25})
    rows = {"state": jnp.ones((4000, 2, 3))}
    found = np.asarray(some._reset_states(rows, key)["state"]).reshape(4000, -1)
    assert (found == found[:, :1]).all() and 0.7 < found.mean() < 0.8
    assert some._reset_states(rows, None) is rows


@pytest.mark.slow
def test_gradient_is_that_of_a_rows_loss():
    """bilm: compute_gradients(loss * unroll_steps)."""
    task, batch = make_task(), batch_of()
    params = params_of(task)

    def ours(params):
        sums = task.loss(params, batch, jax.random.key(0))["lm_loss"]
        return sums / task.loss_weights(batch)["lm_loss"]

    def theirs(params):
        found, _ = hidden_of(task, params, batch)
        return 5 * full(params, found[-1], batch).mean()

    (value, one), (expected, other) = (
        jax.jit(jax.value_and_grad(loss))(params) for loss in (ours, theirs)
    )
    assert_close(one, other, terms=GRADIENT_TERMS)
    assert float(value) == pytest.approx(float(expected) / 5, rel=1e-5)


@pytest.mark.slow
def test_large_vocabulary_is_sampled_and_both_directions_draw(monkeypatch):
    task, batch = make_task(**{"task.samples": 7}), batch_of()
    params, drawn = params_of(task), []
    own = sampled_softmax.draw

    def draw(key, classes, samples):
        drawn.append((key, classes, samples))
        return own(key, classes, samples)

    monkeypatch.setattr(sampled_softmax, "draw", draw)

    def loss(params, batch, key):
        drawn.clear()
        found = task.loss(params, batch, key)["lm_loss"]
        return found, [jax.random.key_data(key) for key, *_ in drawn]

    run = jax.jit(loss)
    first, keys = run(params, batch, jax.random.key(1))
    assert [d[1:] for d in drawn] == [(20, 7), (20, 7)]
    assert not np.array_equal(*keys)
    assert run(params, batch, jax.random.key(1))[0] == first
    assert run(params, batch, jax.random.key(2))[0] != first
    count = len(drawn)
    whole = make_task(**{"task.samples": 20})  # no larger than the vocabulary
    found, _ = hidden_of(task, params, batch)
    expected = full(params, found[-1], batch).sum()
    loss = jax.jit(whole.loss)(params, batch, jax.random.key(1))["lm_loss"]
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert len(drawn) == count


@pytest.mark.slow
def test_evaluation_reads_its_rows_window_by_window(monkeypatch):
    """Over the whole vocabulary, with the state of one long text."""
    task = make_task(**{"task.samples": 7})
    uniform = np.full((2, 20), -np.log(20), np.float32)
    monkeypatch.setattr(type(task), "_unigrams", uniform)
    params, batch = params_of(task), batch_of(rows=3, length=50)
    weights = np.ones((3, 50), np.float32)
    weights[2, 30:] = 0
    given = {**batch, "weights": jnp.asarray(weights)}
    sums = jax.jit(task.outputs)(params, given)
    found, _ = hidden_of(task, params, batch)
    each = full(params, found[-1], batch) * weights
    scores = task.results("dev", [sums, sums]).scores  # two equal batches
    count = weights.sum()
    assert scores["forward_loss"] == pytest.approx(float(each[0].sum() / count), 1e-5)
    assert scores["backward_loss"] == pytest.approx(float(each[1].sum() / count), 1e-5)
    assert scores["loss"] == pytest.approx(float(each.sum() / count / 2), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(np.exp(scores["loss"]))
    assert scores["unigram_loss"] == pytest.approx(np.log(20), rel=1e-5)
    assert task.selection_value(scores) == -scores["loss"]


@pytest.mark.slow
def test_softmax_is_shared_and_begins_as_bilms():
    task = make_task(**{"tokenizer.vocab_size": 5000})
    params = params_of(task)
    softmax, cnn = params["softmax"], params["elmo"]["cnn"]
    assert softmax["kernel"].shape == (5000, 4) and not softmax["bias"].any()
    assert float(softmax["kernel"].std()) == pytest.approx(0.5, rel=0.02)
    assert not cnn["char_embed"][0].any() and cnn["char_embed"][1:].std() > 0.5
    assert (cnn["b_high_0_carry"] == -2).all()
