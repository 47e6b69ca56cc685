"""Replaced-token detection: its losses, gradients, runs and exported models."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax import tasks, tokenization
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.data import loader
from bert_jax.families.electra import replaced
from bert_jax.registry import FAMILIES
from bert_jax.tokenization.wordpiece import WORDPIECE
from bert_jax.training import setup, sharding
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints
from tests import micro_config
from tests.close import assert_close
from tests.micro import initial_params
from tests.runs import here, run

LAST = "--config.predict.layers=-1"
PACKED = """
config.model.hidden_dropout_prob = 0.1
config.model.attention_probs_dropout_prob = 0.1
config.model.num_hidden_layers = 2
config.corpus.packing = True
config.model.scan_layers = True
config.train.micro_batches = 2
config.train.num_steps = 2
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
@pytest.mark.parametrize("family", ["electra", "deberta_v3"])
def test_losses_of_a_loop_over_tokens(family, corpus, tmp_path):
    path = write_config(family, corpus, tmp_path)
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
            return jnp.stack([sums["masked_lm_loss"], sums["replaced_loss"]])

        sums, pull = jax.vjp(losses, params)
        (gradients,) = jax.vmap(pull)(jnp.eye(2))  # compiled once for both
        return task.apply(params, batch, key), sums, gradients

    outputs, sums, gradients = compute(params)
    one, other = (jax.tree.map(lambda x, i=i: x[i], gradients) for i in (0, 1))
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


@pytest.mark.slow
def test_deberta_s_models_are_parted_and_joined(corpus, tmp_path):
    """The discriminator's table is the sum of the generator's and what it has
    learned."""
    own = "config.model.num_hidden_layers = 1"
    path = write_config("deberta_v3", corpus, tmp_path, own)
    task = tasks.create_task(configuration.load_config(str(path), []))
    task.resolve()
    params = initial_params(task.init_params)
    family, config = FAMILIES["deberta_v3"], task.model_config
    models = family.models(config, params)
    ids = np.random.default_rng(0).integers(5, 60, (2, 9))
    inputs = (ids, ids * 0 + 1, ids * 0)
    places = np.array([[2, 5], [1, 8]])
    module = replaced.create_model(config)
    found = jax.jit(module.apply)({"params": params}, *inputs, places)

    def logits(name, head, ids):
        config, params = models[name]
        whole = family.with_heads(config, (head,))
        return jax.jit(whole.apply)({"params": params}, ids, *inputs[1:])

    masked = logits("generator", "masked_lm", ids)["masked_lm_logits"]
    masked = np.take_along_axis(np.asarray(masked), places[..., None], axis=1)
    assert_close(found["masked_lm_logits"], masked, 64)
    other = logits("", "replaced_tokens", found["ids"])["logits"]
    assert_close(found["replaced_logits"], other, 64)
    again = family.replaced_tokens.join(
        models[""][1], {"generator": models["generator"][1]}
    )
    jax.tree.map(lambda x, y: assert_close(x, y, 64), again, params)


@pytest.fixture(scope="module")
def pretrained(corpus, once):
    """An ELECTRA, trained on packed rows, with dropout, stacked layers and
    micro-batches."""

    def train(folder):
        path = write_config("electra", corpus, folder, PACKED)
        run(path, folder / "run")

    return once("replaced", train)


@pytest.mark.slow
def test_run_answers_and_is_exported_as_both_models(
    torch, transformers, pretrained, tmp_path, monkeypatch
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
    assert_close(last, hidden.hidden_states[-1].detach().numpy(), 64)
    assert_close(np.asarray(first["logits"]), hidden.logits.detach().numpy(), 64)
    again = bert_jax.load(out)
    assert again.heads == loaded.heads == ("replaced_tokens",)
    assert_close(again.apply([ids], [[1] * len(ids)], [[0] * len(ids)])["logits"],
                 first["logits"], 64)  # fmt: skip


@pytest.mark.slow
def test_training_goes_on_from_its_weights(pretrained, tmp_path):
    weights.find_source(pretrained / "run").export(tmp_path / "out")
    given = (f"--config.init_from={tmp_path / 'out'}", "--config.tokenizer.vocab_file=")
    task = tasks.create_task(
        configuration.load_config(str(pretrained / "own.py"), given)
    )
    task.resolve()
    mesh = sharding.make_mesh(task.config, (), jax.devices()[:1])
    abstract = sharding.abstract_arrays(task.param_shapes, mesh)
    found, report = setup.init_weights(task, abstract)
    assert not report.initialised and not report.left_over
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with Checkpoints(pretrained / "run", None) as checkpoints:
        saved, _ = checkpoints.restore_params(one)
    jax.tree.map(np.testing.assert_array_equal, found, saved)


def test_a_bert_is_not_trained_so(micro, tmp_path):
    given = ("--config.task.objective=replaced_tokens", "--config.corpus.nsp=False")
    _, error = run(micro, tmp_path / "run", *given, status=2)
    line = error.splitlines()[-1]
    assert "a BERT is not trained so; set --config.model.architecture to one" in line
    assert "electra" in line and "deberta_v3" in line
