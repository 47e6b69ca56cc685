"""The transforms of examples/: their arithmetic by hand, and what their runs log."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.convert.weights import read_weights
from bert_jax.data import loader
from bert_jax.models.heads import BertForPreTraining
from bert_jax.training.transforms import accumulate, with_divisors
from bert_jax.workdir import metrics
from examples import gradient_norms, running_mean, teacher, z_loss
from tests.examples.run_test import flags, path
from tests.runs import run, saved

WEIGHTS = np.array([[1.0, 0.0, 1.0]], np.float32)
BATCH = {
    "input_ids": np.array([[101, 103, 1200, 103, 102]]),
    "input_mask": np.ones((1, 5), np.int32),
    "segment_ids": np.zeros((1, 5), np.int32),
    "masked_lm_positions": np.array([[1, 0, 3]]),
    "masked_lm_ids": np.array([[1173, 0, 7599]]),
    "masked_lm_weights": WEIGHTS,
}


def plain(params, batch, key):
    return {"masked_lm_loss": jnp.float32(2.0)}


def returns(logits):
    """A task whose model returns these."""
    return types.SimpleNamespace(
        apply=lambda params, batch, key: {"masked_lm_logits": logits},
        config=types.SimpleNamespace(train=types.SimpleNamespace(z_loss=1e-4)),
    )


def test_z_loss_by_hand():
    logits = np.random.default_rng(0).normal(size=(1, 3, 7)).astype(np.float32)
    changed = z_loss.with_z_loss(plain, returns(logits))
    sums = changed({}, BATCH, None)
    expected = 1e-4 * (WEIGHTS * special.logsumexp(logits, axis=-1) ** 2).sum()
    assert float(sums["z_loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(sums["masked_lm_loss"]) == 2.0


def test_teacher_by_hand():
    saved = read_weights(teacher.FOLDER)
    inputs = [jnp.asarray(BATCH[name]) for name in teacher.COLUMNS]
    model = BertForPreTraining(saved.config)
    params = jax.tree.map(jnp.asarray, saved.params)
    found = model.apply({"params": params}, *inputs)
    theirs = np.asarray(found["masked_lm_logits"], np.float64)
    ours = np.random.default_rng(0).normal(size=theirs.shape)
    changed = teacher.with_teacher(plain, returns(jnp.asarray(ours)))
    sums = jax.jit(lambda batch: changed({}, batch, None))(BATCH)
    gap = special.log_softmax(theirs, -1) - special.log_softmax(ours, -1)
    each = (special.softmax(theirs, -1) * gap).sum(axis=-1)
    expected = (WEIGHTS * each).sum()
    assert float(sums["teacher_nats"]) == pytest.approx(expected, rel=1e-4)


def test_running_mean_by_hand():
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(3, 1, 5, 8)).astype(np.float32)
    ours, first, second = map(jnp.asarray, drawn)
    seen = []

    def apply(params, batch, key, terms):
        seen.append((batch["input_ids"].tolist(), key))
        return {"states": [0 * ours, ours] if params == {"average": "its"} else theirs}

    theirs, given = [0 * first, first, second], {"average": "its"}
    train = types.SimpleNamespace(mean_layers=2, mean_share=0.5)
    config = types.SimpleNamespace(train=train, optimizer=types.SimpleNamespace(ema=1))
    task = types.SimpleNamespace(apply=apply, config=config)
    changed = running_mean.with_running_mean(plain, task)
    sums = changed(given, {k: jnp.asarray(x) for k, x in BATCH.items()}, "key")
    student, teacher_saw = seen
    assert student == ([[101, 103, 1200, 103, 102]], "key")
    assert teacher_saw == ([[101, 1173, 1200, 7599, 102]], None)

    def unit(x):
        return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)

    target = unit((unit(first) + unit(second)) / 2)
    squares = ((ours - target) ** 2).mean(axis=-1)[0]
    expected = 0.5 * (squares[1] + squares[3])
    assert float(sums["mean_loss"]) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("--config.train.micro_batches=2",)], ids=str)
def test_running_mean_is_the_run_s(corpus, tmp_path, given):
    """The loss of a step, from the checkpoint before it."""
    saves = {"checkpoint__save_every": 1, "checkpoint__keep_every": 1}
    own = flags(corpus, tmp_path / "data", optimizer__ema=0.5, **saves)
    own += ("--config.model.hidden_dropout_prob=0", *given)
    own += ("--config.model.attention_probs_dropout_prob=0",)
    run(path("running_mean"), tmp_path / "run", *own)
    config = configuration.load_config(path("running_mean"), own)
    task = tasks.create_task(config)
    changed = jax.jit(running_mean.with_running_mean(plain, task))
    for line in metrics.read_metrics(tmp_path / "run", "train")[1:4]:
        step = line["step"] - 1
        state = saved(tmp_path / "run", step, "params", "learning_params")
        params = state["learning_params"] | {"average": state["params"]}
        batch = loader.batch_at(config, step)
        total = changed(params, batch, None)["mean_loss"]
        mean = total / batch["masked_lm_weights"].sum()
        assert line["mean_loss"] == pytest.approx(float(mean), rel=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_layer_s_norm_is_its_gradient_s(parts):
    def loss(params, batch, key):
        encoder = params["bert"]["encoder"]
        rows = batch["x"] @ encoder["layer_0"]["w"] + params["bert"]["embeddings"]["w"]
        return {"loss": jnp.sum(rows)}

    params = {
        "bert": {
            "embeddings": {"w": jnp.ones(())},
            "encoder": {"layer_0": {"w": jnp.ones(2)}, "layer_1": {"w": jnp.ones(2)}},
        }
    }
    made = accumulate(loss, lambda x: {"loss": jnp.float32(1)}, parts)
    batch = {"x": jnp.array([[3.0, 0.0], [0.0, 4.0]])}
    found = gradient_norms.with_norms(made, None)(params, batch, jax.random.key(0))
    assert {name: float(x) for name, x in found.metrics.items()} == {
        "grad_norm_embeddings": 2.0,
        "grad_norm_layer_0": 5.0,
        "grad_norm_layer_1": 0.0,
    }
    np.testing.assert_array_equal(
        found.params["bert"]["encoder"]["layer_0"]["w"], [3.0, 4.0]
    )


def test_divisor_of_a_further_sum_is_another_s():
    weights = with_divisors(lambda batch: {"one": batch["x"].sum()}, {"two": "one"})
    found = weights({"x": np.arange(4.0)})
    assert found == {"one": 6.0, "two": 6.0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["z_loss", "gradient_norms"])
def test_runs_log_what_they_add(corpus, tmp_path, name):
    data = tmp_path / "data"
    both = f'("{name}",)'
    given = flags(corpus, data, train__micro_batches=2, train__transforms=both)
    run(path(name), tmp_path / "run", *given)
    lines = metrics.read_metrics(tmp_path / "run", "train")
    for line in lines:
        parts = line["masked_lm_loss"] + line["next_sentence_loss"]
        if name == "z_loss":
            assert line["z_loss"] > 0
            assert line["loss"] == pytest.approx(parts + line["z_loss"], rel=1e-5)
        else:
            norms = [line["grad_norm_embeddings"], line["grad_norm_layer_0"]]
            assert 0 < np.linalg.norm(norms) < line["grad_norm"]
            assert line["loss"] == pytest.approx(parts, rel=1e-5)


@pytest.mark.slow
def test_transform_of_a_loss_of_single_rows_is_refused_for_pairs(tmp_path):
    rows = "text,text_b\na,b\nc,d\n"
    (tmp_path / "pairs.csv").write_text(rows)
    (tmp_path / "own.py").write_text(
        "import examples.z_loss\n\nextends = 'finetune/embeddings:recipe=tiny'\n\n\n"
        "def get_config(config):\n    return config\n"
    )
    _, error = run(
        tmp_path / "own.py", tmp_path / "run",
        "--config.init_from=mini", "--config.train.transforms=('z_loss',)",
        f"--config.task.train_file={tmp_path / 'pairs.csv'}",
        "--config.task.text_b=text_b", "--config.train.num_steps=1", status=2,
    )  # fmt: skip
    assert "z_loss changes a loss of single rows, and embeddings" in error
    assert error.count("\n") == 1
