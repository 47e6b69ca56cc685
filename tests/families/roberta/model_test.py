"""RoBERTa pre-trained through main. Steps, fine-tuning: contract_test.py."""

import json

import pytest

import bert_jax
from bert_jax import tokenization
from bert_jax.workdir import metrics
from tests import micro_config
from tests.runs import refused, run

PRETRAINING = """
config.model.max_position_embeddings = 48
config.model.hidden_dropout_prob = 0.0
config.model.attention_probs_dropout_prob = 0.0
config.tokenizer.vocab_size = 300
config.corpus.max_seq_length = 48
config.masking.max_predictions_per_seq = 10
"""


@pytest.fixture(scope="module")
def pretrained(corpus, once):
    def train(folder):
        path = folder / "own.py"
        micro_config.pretraining(path, corpus, "roberta:size=tiny", PRETRAINING)
        run(path, folder / "run")

    return once("pretrained_roberta", train) / "run"


def test_pre_training_predicts_masked_pieces(pretrained):
    lines = metrics.read_metrics(pretrained, "train")
    assert lines[-1]["masked_lm_loss"] < lines[0]["masked_lm_loss"]
    assert "next_sentence_loss" not in lines[0]
    ids = tokenization.special_ids(tokenization.load(pretrained / "tokenizer.json"))
    assert (ids.cls, ids.pad, ids.sep) == (0, 1, 2)
    (guesses,) = bert_jax.load(pretrained).fill_mask("the quick<mask> fox")
    assert len(guesses) == 5 and all(guess["id"] > 4 for guess in guesses)


def test_padding_with_another_id_is_refused_at_the_start(pretrained, tmp_path):
    tokenization.load(pretrained / "tokenizer.json").model.save(str(tmp_path))
    pieces = json.loads((tmp_path / "vocab.json").read_text())
    pieces["<s>"], pieces["<pad>"] = 1, 0
    (tmp_path / "vocab.json").write_text(json.dumps(pieces))
    own = tmp_path / "own.py"
    own.write_text('extends = "roberta:size=tiny"\n\ndef get_config(c): pass\n')
    given = (f"--config={own}", f"--workdir={tmp_path / 'run'}")
    vocabulary = f"--config.tokenizer.vocab_file={tmp_path / 'vocab.json'}"
    line = refused(*given, vocabulary)
    assert "the vocabulary's padding has the id 0" in line
    assert not (tmp_path / "run" / "config.json").exists()
