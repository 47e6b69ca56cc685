"""GPT through main: pre-trained, fine-tuned, queried. Steps: contract_test.py."""

import json

import micro_config
import numpy as np
import pytest
import runs
from runs import finish, here, start, write_pairs

import bert_jax
from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.data import loader
from bert_jax.workdir import metrics
from tests.close import assert_close

PRETRAINING = """
config.model.intermediate_size = 128
config.tokenizer.vocab_size = 120
"""
FINETUNING = """
config.train.log_every = 1
config.checkpoint.save_every = 10
"""


@pytest.fixture(scope="module")
def micro_gpt(corpus, once):
    def write(folder):
        path = folder / "gpt.py"
        micro_config.pretraining(path, corpus, "gpt:size=tiny", PRETRAINING)

    return once("micro_gpt", write) / "gpt.py"


@pytest.fixture(scope="module")
def pretrained(micro_gpt, once):
    def train(folder):
        finish(start(f"--config={micro_gpt}", f"--workdir={folder / 'run'}"))

    return once("pretrained_gpt", train) / "run"


@pytest.fixture(scope="module")
def finetuned(pretrained, tmp_path_factory):
    """A run on pairs of which the telling word decides, and its folder."""
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder, "fox", "cats")
    extends = "finetune/text:recipe=tiny,model=gpt"
    path = micro_config.finetuning(folder / "own.py", pretrained, extends, FINETUNING)
    out, err = runs.run(path, folder / "run", "--config.task.text_b=text_b")
    return folder, out, err


@pytest.mark.slow
def test_pre_training_reads_running_text(micro_gpt, pretrained):
    config = json.loads((pretrained / "config.json").read_text())
    assert config["model"]["architecture"] == "gpt" and config["model"]["causal"]
    lines = metrics.read_metrics(pretrained, "train")
    assert lines[-1]["lm_loss"] < lines[0]["lm_loss"] == lines[0]["loss"]
    dev = metrics.read_metrics(pretrained, "dev")[-1]
    assert {"perplexity", "lm_accuracy", "unigram_loss"} <= dev.keys()
    assert (pretrained / "vocab.json").exists()
    assert not (pretrained / "vocab.txt").exists()
    batch = loader.batch_at(configuration.load_config(str(micro_gpt), []), 0)
    assert batch["input_ids"].max() < 117  # the three special tokens come last
    full = batch["input_mask"].all(axis=1)
    assert full.any() and batch["segment_ids"].max() == 0
    tokenizer = tokenization.load(pretrained / "tokenizer.json")
    row = tokenizer.decode(batch["input_ids"][full][0].tolist())
    corpus = (
        configuration.load_config(str(micro_gpt), [])
        .corpus.sources[0]
        .partition(":")[2]
    )
    with open(corpus, encoding="utf-8") as file:
        text = " ".join(file.read().split())
    assert " ".join(row.split()[1:-1]) in text


@pytest.mark.slow
def test_gpt_fine_tuned_run_answers_in_every_mode(finetuned, tmp_path):
    folder, _, _ = finetuned
    at = f"--workdir={folder / 'run'}"
    source = f"--input={folder / 'dev.jsonl'}"
    out, _ = here("--mode=predict", at, source)
    rows = [json.loads(line) for line in out.splitlines()]
    gold = [json.loads(x)["label"] for x in (folder / "dev.jsonl").open()]
    accuracy = np.mean([r["label"] == g for r, g in zip(rows, gold, strict=True)])
    assert accuracy == pytest.approx(
        metrics.read_metrics(folder / "run", "dev")[-1]["accuracy"]
    )
    here("--mode=evaluate", at)
    vectors = "--config.predict.vectors=cls"
    written = tmp_path / "vectors.jsonl"
    flags = (vectors, "--config.predict.layers=(-1,)", f"--output={written}")
    here("--mode=extract", at, source, *flags)
    out = written.read_text()
    assert json.loads(out.splitlines()[0])["features"][0]["token"] == "_classify_"
    here("--mode=export", at, f"--output={tmp_path / 'model'}")
    fields = json.loads((tmp_path / "model" / "config.json").read_text())
    assert fields["architectures"] == ["OpenAIGPTForSequenceClassification"]
    model, again = bert_jax.load(folder / "run"), bert_jax.load(tmp_path / "model")
    ids = np.array([model.tokenizer.encode("the dog", "a fox").ids])
    columns = ids, np.ones_like(ids), 0 * ids
    assert_close(model.apply(*columns)["logits"], again.apply(*columns)["logits"])
    predicted = again.predict([{"text": "the dog", "text_b": "a fox"}])
    assert predicted[0]["label"] in ("one", "two")


def test_gpt_refuses_in_one_line(micro_gpt, tmp_path):
    for field, message in (
        ("corpus.nsp=True", "a GPT reads running text"),
        ("corpus.packing=True", "running text, which fills the rows"),
        ("model.causal=False", "config.model.causal must be True"),
        ("model.architecture=rnn", "choose one of bert, albert"),
        ("task.objective=mlm", "predicts each piece from those before it"),
    ):
        _, err = runs.run(micro_gpt, tmp_path / "run", f"--config.{field}", status=2)
        assert message in err and err.count("\n") == 1, err
    _, err = here("--config=configs/tiny.py", f"--workdir={tmp_path / 'run'}",
                  "--config.model.architecture=gpt", status=2)  # fmt: skip
    assert err.count("\n") == 1 and "as configs/gpt.py does" in err
