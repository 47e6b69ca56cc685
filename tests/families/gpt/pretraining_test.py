"""GPT pre-trained through main. Steps, fine-tuning: contract_test.py."""

import json

import pytest

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.data import loader
from bert_jax.workdir import metrics
from tests import micro_config
from tests.runs import refused, run

PRETRAINING = """
config.model.intermediate_size = 128
config.tokenizer.vocab_size = 120
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
        run(micro_gpt, folder / "run")

    return once("pretrained_gpt", train) / "run"


@pytest.mark.slow
def test_pre_training_reads_running_text(micro_gpt, pretrained):
    config = json.loads((pretrained / "config.json").read_text())
    assert config["model"]["architecture"] == "gpt" and config["model"]["causal"]
    lines = metrics.read_metrics(pretrained, "train")
    assert lines[-1]["lm_loss"] < lines[0]["lm_loss"] == lines[0]["loss"]
    dev = metrics.read_metrics(pretrained, "dev")[-1]
    assert {"perplexity", "lm_accuracy", "unigram_loss"} <= dev.keys()
    assert not (pretrained / "vocab.txt").exists()
    config = configuration.load_config(str(micro_gpt), [])
    batch = loader.batch_at(config, 0)
    assert batch["input_ids"].max() < 117  # the three special tokens come last
    full = batch["input_mask"].all(axis=1)
    assert full.any() and batch["segment_ids"].max() == 0
    tokenizer = tokenization.load(pretrained / "tokenizer.json")
    row = tokenizer.decode(batch["input_ids"][full][0].tolist())
    with open(config.corpus.sources[0].partition(":")[2], encoding="utf-8") as file:
        text = " ".join(file.read().split())
    assert " ".join(row.split()[1:-1]) in text


@pytest.mark.parametrize(
    ("config", "field", "said"),
    [
        ("", "corpus.nsp=True", "a GPT reads running text"),
        ("", "task.objective=mlm", "predicts each piece from those before it"),
        ("configs/tiny.py", "model.architecture=gpt", "as configs/gpt.py does"),
    ],
)
def test_gpt_refuses_in_one_line(micro_gpt, tmp_path, config, field, said):
    given = (f"--workdir={tmp_path / 'run'}", f"--config.{field}")
    assert said in refused(f"--config={config or micro_gpt}", *given)
