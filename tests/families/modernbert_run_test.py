"""ModernBERT through main: pre-trained, fine-tuned, queried, exported."""

import json

import micro_config
import numpy as np
import pytest
import runs
from runs import finish, here, start, write_pairs

import bert_jax
from bert_jax.workdir import metrics

PRETRAINING = """
config.model.num_hidden_layers = 2
config.model.intermediate_size = 48
config.model.local_attention = 8
config.model.attention_probs_dropout_prob = 0.0
config.tokenizer.vocab_size = 300
config.masking.max_predictions_per_seq = 10
config.checkpoint.save_every = 5
"""
FINETUNING = """
config.task.text_b = "text_b"
"""


@pytest.fixture(scope="module")
def micro_modernbert(corpus, once):
    def write(folder):
        path = folder / "own.py"
        micro_config.pretraining(path, corpus, "modernbert:size=tiny", PRETRAINING)

    return once("micro_modernbert", write) / "own.py"


@pytest.fixture(scope="module")
def pretrained(micro_modernbert, once):
    def train(folder):
        given = (f"--config={micro_modernbert}", f"--workdir={folder / 'run'}")
        finish(start(*given))

    return once("pretrained_modernbert", train) / "run"


@pytest.fixture(scope="module")
def finetuned(pretrained, tmp_path_factory):
    """A run on pairs of which the telling word decides, and its folder."""
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder, "fox", "cats")
    extends = "finetune/text:recipe=tiny,model=modernbert"
    path = micro_config.finetuning(folder / "own.py", pretrained, extends, FINETUNING)
    # The mean of a text, where the weights' own config says its first token.
    runs.run(path, folder / "run", "--config.model.classifier_pooling=mean")
    return folder


@pytest.mark.slow
def test_modernbert_fine_tuned_run_answers_in_every_mode(finetuned, tmp_path):
    at = f"--workdir={finetuned / 'run'}"
    source = f"--input={finetuned / 'dev.jsonl'}"
    out, _ = here("--mode=predict", at, source)
    rows = [json.loads(line) for line in out.splitlines()]
    gold = [json.loads(x)["label"] for x in (finetuned / "dev.jsonl").open()]
    accuracy = np.mean([r["label"] == g for r, g in zip(rows, gold, strict=True)])
    assert (
        accuracy == metrics.read_metrics(finetuned / "run", "dev")[-1]["accuracy"] > 0.9
    )
    asked = [{k: row[k] for k in ("text", "text_b")} for row in rows]
    here("--mode=evaluate", at)
    written = tmp_path / "vectors.jsonl"
    flags = ("--config.predict.vectors=cls", "--config.predict.layers=(-1,)")
    here("--mode=extract", at, source, *flags, f"--output={written}")
    first = json.loads(written.read_text().splitlines()[0])
    assert first["features"][0]["token"] == "[CLS]"
    here("--mode=export", at, f"--output={tmp_path / 'model'}")
    fields = json.loads((tmp_path / "model" / "config.json").read_text())
    assert fields["architectures"] == ["ModernBertForSequenceClassification"]
    assert fields["classifier_pooling"] == "mean"
    again = bert_jax.load(tmp_path / "model")
    for row, other in zip(rows, again.predict(asked), strict=True):
        assert row["scores"] == pytest.approx(other["scores"], abs=1e-5)
