"""Table 5's systems through main: no next sentence loss, left to right, a BiLSTM."""

import json
import math

import flax.linen as nn
import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.data import loader
from bert_jax.tasks import objectives
from bert_jax.workdir import metrics
from tests.micro import initial_params, write_rows
from tests.runs import here, refused, run

LTR = "--config.task.objective=ltr"


def prepared(micro, *fields):
    task = tasks.create_task(configuration.load_config(micro, list(fields)))
    task.resolve()
    task.training_data()
    return task


@pytest.mark.slow
def test_ltr_learns_and_is_recorded(left_to_right):
    config = json.loads((left_to_right / "config.json").read_text())
    assert config["model"]["causal"] and not config["task"]["nsp_loss"]
    lines = metrics.read_metrics(left_to_right, "train")
    assert lines[-1]["loss"] < lines[0]["loss"] == lines[0]["lm_loss"]
    last = metrics.read_metrics(left_to_right, "dev")[-1]
    assert last["perplexity"] == pytest.approx(math.exp(last["lm_loss"]))
    assert {"unigram_loss", "lm_accuracy"} <= last.keys()
    assert not any("masked" in name or "sentence" in name for name in last)
    rows = (left_to_right / "predictions" / "dev.jsonl").read_text().splitlines()
    assert all(len(json.loads(row)["masks"]) == 1 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("packing", [False, True])
def test_ltr_predicts_each_token_from_those_before_it(micro, packing):
    """The loss of a loop over tokens. Pairs that share a row stay apart."""
    task = prepared(micro, LTR, f"--config.corpus.packing={packing}")
    batch = loader.batch_at(task.config, 3)
    assert not {name for name in batch if name.startswith("masked")}
    params = jax.tree.map(lambda x: 5 * x, initial_params(task.init_params))
    sums = jax.jit(task.loss)(params, batch, None)
    weights_ = jax.jit(task.loss_weights)(batch)
    outputs = jax.jit(task.apply)(params, batch, None)
    logits = np.asarray(outputs["lm_logits"], np.float64)
    own = batch.get("sequence_ids", batch["input_mask"])
    total, count = 0.0, 0
    for row, ids in enumerate(batch["input_ids"]):
        for place in range(1, ids.size):
            if own[row, place] and own[row, place] == own[row, place - 1]:
                scores = logits[row, place - 1]
                total += np.log(np.exp(scores).sum()) - scores[ids[place]]
                count += 1
    assert weights_ == {"lm_loss": count} and count > 100
    assert float(sums["lm_loss"]) == pytest.approx(total, rel=1e-5)


def test_scores_do_not_follow_the_loss(micro, plain, tmp_path):
    """The same checkpoint, with a loss of another size and name."""

    mlm = objectives.MASKED_LM

    def half(outputs, batch):
        return {"masked_lm_loss": 0.5 * mlm.losses(outputs, batch)["masked_lm_loss"]}

    def named_half(outputs, batch):
        return {"half_loss": half(outputs, batch)["masked_lm_loss"]}

    objectives.OBJECTIVES["halved"] = mlm._replace(losses=half)
    objectives.OBJECTIVES["named"] = mlm._replace(
        losses=named_half,
        weights=lambda batch: {"half_loss": mlm.weights(batch)["masked_lm_loss"]},
        next_sentence=False,
    )

    def scores(name):
        given = (f"--config.init_from={plain}", f"--config.task.objective={name}")
        out, _ = run(micro, tmp_path / name, "--mode=evaluate", *given)
        return json.loads(out)

    found, halved, named = map(scores, ("mlm", "halved", "named"))
    for name in ("masked_lm_loss", "perplexity", "masked_lm_accuracy", "unigram_loss"):
        assert halved[name] == named[name] == found[name]
    pieces, pairs = found["masked_lm_loss"], found["next_sentence_loss"]
    assert found["loss"] == pieces + pairs
    assert halved["loss"] == pytest.approx(pieces / 2 + pairs)
    assert named["loss"] == named["half_loss"] == pytest.approx(pieces / 2)


@pytest.mark.slow
def test_next_sentence_head_stays_without_nsp_loss(micro):
    """Over the same pairs and masks. That decay spares it: optimizer_test.py."""
    found = []
    for fields in ([], ["--config.task.nsp_loss=False"]):
        task = prepared(micro, *fields)
        batch = loader.batch_at(task.config, 2)
        params = nn.meta.unbox(task.param_shapes)
        sums = jax.eval_shape(task.loss, params, batch, jax.random.key(0))
        found.append((batch, {*params}, {*sums}))
    (batch, heads, losses), (same, own, left) = found
    for name, column in batch.items():
        np.testing.assert_array_equal(column, same[name])
    assert own == heads >= {"next_sentence"}
    assert losses - left == {"next_sentence_loss"} and left == {"masked_lm_loss"}


def _predicted(workdir, folder, rows, *flags):
    source = write_rows(folder / "rows.jsonl", rows)
    flags = (f"--workdir={workdir}", f"--input={source}", *flags)
    return here("--mode=predict", *flags)[0]


@pytest.mark.slow
def test_ltr_predicts_the_next_token(left_to_right, tmp_path):
    out = _predicted(left_to_right, tmp_path, [{"text": "the quick"}, {"text": "a"}])
    model = bert_jax.load(left_to_right)
    for line, text in zip(out.splitlines(), ("the quick", "a"), strict=True):
        encoding = model.tokenizer.encode(text)
        ids = np.array([encoding.ids])
        outputs = model.apply(ids, np.ones_like(ids), np.zeros_like(ids))
        assert "masked_lm_logits" not in outputs
        assert "next_sentence_logits" not in outputs
        scores = jax.nn.softmax(outputs["lm_logits"][0, -2])
        guesses = json.loads(line)["next"]
        assert [g["id"] for g in guesses] == np.argsort(-scores)[:5].tolist()
        assert guesses[0]["probability"] == pytest.approx(float(scores.max()), rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--config.model.causal"], "set --config.task.objective=ltr"),
        (["--config.task.objective=lm"], "choose one of mlm, ltr"),
    ],
)
def test_objectives_that_do_not_fit_are_refused(micro, tmp_path, flags, message):
    start = (f"--config={micro}", f"--workdir={tmp_path / 'run'}")
    assert message in refused(*start, *flags)


@pytest.mark.slow
def test_weights_of_the_other_direction(micro, plain, left_to_right, tmp_path):
    """Named on the command line or by the task, they contradict the config."""
    for source, flags in ((plain, [LTR]), (left_to_right, [])):
        start = (f"--config={micro}", f"--workdir={tmp_path / 'run'}")
        assert "causal" in refused(*start, f"--config.init_from={source}", *flags)
