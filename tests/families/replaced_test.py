"""Replaced-token detection: its losses, gradients, runs and exported models."""

import json

import jax
import jax.numpy as jnp
import micro_config
import numpy as np
import pytest
from micro import initial_params
from runs import finish, here, run, start

import bert_jax
from bert_jax import tasks, tokenization
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.data import loader
from bert_jax.tokenization.wordpiece import WORDPIECE
from bert_jax.workdir import metrics
from tests.close import assert_close

LAST = "--config.predict.layers=-1"
FAMILIES = ("electra", "deberta_v3")
PACKED = """
config.model.num_hidden_layers = 2
config.corpus.packing = True
config.model.scan_layers = True
config.train.micro_batches = 2
config.checkpoint.save_every = 5
"""


def write_config(family, corpus, folder, own=""):
    """Writes a config of pre-training, with WordPieces in either family."""
    tokenizer = WORDPIECE.train([corpus.read_text()] * 2, 64, lowercase=True)
    tokenization.save_tokenizer(tokenizer, folder)
    own += f'\nconfig.tokenizer.vocab_file = "{folder / "tokenizer.json"}"'
    own += "\nconfig.tokenizer.lowercase = True"
    path, extends = folder / "own.py", f"{family}:size=tiny"
    return micro_config.pretraining(path, corpus, extends, own)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_losses_of_a_loop_over_tokens(family, corpus, tmp_path):
    own = "config.model.num_hidden_layers = 1"
    path = write_config(family, corpus, tmp_path, own)
    task = tasks.create_task(configuration.load_config(str(path), []))
    task.resolve()
    task.training_data()
    batch = {k: jnp.asarray(v) for k, v in loader.batch_at(task.config, 1).items()}
    params = initial_params(task.init_params)
    params = jax.tree.map(lambda x: 3 * x, params)
    bias = params["generator"]["masked_lm"]["bias"]  # so that it is right now and then
    common = np.bincount(np.asarray(batch["masked_lm_ids"]).ravel())[1:].argmax() + 1
    params["generator"]["masked_lm"]["bias"] = bias.at[common].set(4.0)
    key = jax.random.key(4)

    @jax.jit
    def compute(params):
        def losses(params):
            sums = task.loss(params, batch, key)
            return [sums[name] for name in ("masked_lm_loss", "replaced_loss")]

        outputs = task.apply(params, batch, key)
        return outputs, losses(params), jax.jacrev(losses)(params)

    outputs, sums, (one, other) = compute(params)
    ids, real = np.asarray(batch["input_ids"]), np.asarray(batch["input_mask"])
    used = np.asarray(batch["masked_lm_weights"]) > 0
    text, chosen = ids.copy(), np.zeros(ids.shape, bool)
    generator = 0.0
    for row, column in zip(*np.nonzero(used), strict=True):
        position = int(batch["masked_lm_positions"][row, column])
        wanted = int(batch["masked_lm_ids"][row, column])
        text[row, position], chosen[row, position] = wanted, True
        scores = np.float64(outputs["masked_lm_logits"][row, column])
        generator += np.log(np.exp(scores).sum()) - scores[wanted]
    seen = np.asarray(outputs["ids"])
    labels = seen != text
    assert 0 < labels.sum() < used.sum() and not (labels & ~chosen).any()
    assert 0.7 < (ids == task.tokenizer.token_to_id("[MASK]")).sum() / used.sum() < 1
    logits = np.float64(outputs["replaced_logits"])
    chance = 1 / (1 + np.exp(-logits))
    each = -np.where(labels, np.log(chance), np.log(1 - chance))
    expected = [generator, 50 * (each * real).sum()]
    np.testing.assert_allclose(sums, expected, rtol=1e-4)
    divisors = task.loss_weights(batch)
    expected = {"masked_lm_loss": used.sum(), "replaced_loss": real.sum()}
    assert divisors == expected
    found = {k: (float(x), float(y)) for k, (x, y) in
             task.objective.scores(outputs, batch).items()}  # fmt: skip
    assert found == {
        "replaced_accuracy": (((logits > 0) == labels)[real > 0].sum(), real.sum()),
        "replaced_fraction": (labels.sum(), real.sum()),
        "replaced_recall": ((logits > 0)[labels].sum(), labels.sum()),
    }

    def table(trunk):
        words = trunk["bert"]["embeddings"]["word_embeddings"]["embedding"]
        return float(np.abs(words).max())

    # The choice of a token has no gradient: the generator learns from its own loss.
    assert not any(map(np.any, jax.tree.leaves(other["generator"])))
    assert not any(map(np.any, jax.tree.leaves(one["bert"]["encoder"])))
    assert table(other) > 0
    if family == "electra":
        assert table(one) > 0 and "embeddings" not in one["generator"]["bert"]
    else:
        assert table(one) == 0 and table(one["generator"]) > 0


@pytest.fixture(scope="module")
def pretrained(corpus, once):
    """Trains an ELECTRA in packed rows, with stacked layers and micro-batches."""

    def train(folder):
        path = write_config("electra", corpus, folder, PACKED)
        finish(start(f"--config={path}", f"--workdir={folder / 'run'}"))

    return once("replaced_electra", train)


@pytest.mark.slow
def test_run_answers_and_is_exported_as_both_models(
    torch, transformers, pretrained, tmp_path
):
    workdir, out = pretrained / "run", tmp_path / "out"
    dev = metrics.read_metrics(workdir, "dev")[-1]
    assert {"masked_lm_loss", "replaced_loss", "replaced_recall"} <= dev.keys()
    here("--mode=export", f"--workdir={workdir}", f"--output={out}")
    (tmp_path / "rows.jsonl").write_text('{"text": "the [MASK] fox"}\n')
    asked = (f"--workdir={workdir}", f"--input={tmp_path / 'rows.jsonl'}")
    answer = json.loads(here("--mode=predict", *asked)[0])["masks"]
    loaded, generator = bert_jax.load(workdir), bert_jax.load(out / "generator")
    for other in (loaded, generator):
        (guesses,) = other.fill_mask("the [MASK] fox")
        assert [x["id"] for x in guesses] == [x["id"] for x in answer[0]]
    to = tmp_path / "vectors.jsonl"
    (tmp_path / "rows.jsonl").write_text('{"text": "the quick fox"}\n')
    here("--mode=extract", *asked, LAST, f"--output={to}")
    tokens = json.loads(to.read_text())["features"]
    ids = loaded.tokenizer.encode("the quick fox").ids
    first = loaded.apply([ids], [[1] * len(ids)], [[0] * len(ids)])
    vectors = [token["layers"][0]["values"] for token in tokens]
    last = np.asarray(first["hidden_states"][-1])
    np.testing.assert_allclose(np.array(vectors), last[0], rtol=0, atol=1e-5)
    model = transformers.AutoModelForMaskedLM.from_pretrained(out / "generator")
    assert type(model).__name__ == "ElectraForMaskedLM"
    batch = {"input_ids": torch.tensor([ids])}
    found = generator.apply([ids], [[1] * len(ids)], [[0] * len(ids)])
    expected = model(**batch).logits.detach().numpy()
    assert_close(np.asarray(found["masked_lm_logits"]), expected, 64)
    model = transformers.ElectraForPreTraining.from_pretrained(out)
    hidden = model(**batch, output_hidden_states=True)
    assert_close(
        last,
        hidden.hidden_states[-1].detach().numpy(),
        64,
    )
    assert_close(np.asarray(first["logits"]), hidden.logits.detach().numpy(), 64)
    again = bert_jax.load(out)
    assert again.heads == loaded.heads == ("replaced_tokens",)
    assert_close(again.apply([ids], [[1] * len(ids)], [[0] * len(ids)])["logits"],
                 first["logits"], 64)  # fmt: skip


@pytest.mark.slow
def test_training_goes_on_from_its_weights(pretrained, tmp_path):
    weights.find_source(pretrained / "run").export(tmp_path / "out")
    given = (f"--config.init_from={tmp_path / 'out'}", "--config.train.num_steps=1")
    given += ("--config.optimizer.learning_rate=0",)
    vocabulary = ("--config.tokenizer.vocab_file=",)
    run(pretrained / "own.py", tmp_path / "run", *given, *vocabulary)
    report = json.loads((tmp_path / "run" / "init_from.json").read_text())
    assert not report["initialised"] and not report["left_over"]
    scores = [metrics.read_metrics(x, "dev")[-1]["loss"]
              for x in (pretrained / "run", tmp_path / "run")]  # fmt: skip
    assert scores[1] == pytest.approx(scores[0], rel=1e-5)


def test_a_bert_is_not_trained_so(micro, tmp_path):
    given = ("--config.task.objective=replaced_tokens", "--config.corpus.nsp=False")
    _, error = run(micro, tmp_path / "run", *given, status=2)
    line = error.splitlines()[-1]
    assert "a BERT is not trained so; set --config.model.architecture to one" in line
    assert "electra" in line and "deberta_v3" in line
