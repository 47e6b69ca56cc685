"""RoBERTa through main: pre-trained, fine-tuned, killed, queried.

Steps on several devices and batches of several seeds: contract_test.py.
"""

import json

import micro_config
import numpy as np
import pytest
import runs
from runs import finish, here, start, write_pairs

import bert_jax
from bert_jax import tokenization
from bert_jax.workdir import metrics
from tests.close import assert_close

PRETRAINING = """
config.model.max_position_embeddings = 48
config.model.hidden_dropout_prob = 0.0
config.model.attention_probs_dropout_prob = 0.0
config.tokenizer.vocab_size = 300
config.corpus.max_seq_length = 48
config.masking.max_predictions_per_seq = 10
"""
FINETUNING = """
config.task.max_seq_length = 48
config.optimizer.learning_rate = 3e-3
config.train.log_every = 1
config.checkpoint.save_every = 5
"""
PAIRS = "--config.task.text_b=text_b"
PAIR = {"text": "the dog", "text_b": "a quick fox"}
QUESTION = {"question": "who jumps?", "context": "the fox jumps over it"}
SHORT = ("--config.task.doc_stride=16", "--config.task.max_query_length=16")


@pytest.fixture(scope="module")
def pretrained(corpus, once):
    def train(folder):
        path = folder / "own.py"
        micro_config.pretraining(path, corpus, "roberta:size=tiny", PRETRAINING)
        finish(start(f"--config={path}", f"--workdir={folder / 'run'}"))

    return once("pretrained_roberta", train) / "run"


@pytest.fixture
def config(pretrained, tmp_path):
    """Writes the config of a task, over pairs whose last word decides."""

    def write(task="text"):
        write_pairs(tmp_path, "fox", "cats")
        path, extends = (
            tmp_path / "own.py",
            f"finetune/{task}:recipe=tiny,model=roberta",
        )
        return micro_config.finetuning(path, pretrained, extends, FINETUNING)

    return write


def theirs(folder, kind, *texts, **fields):
    """The logits of `transformers` for an exported folder."""
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    columns = tokenizer(*texts, return_tensors="pt", padding=True, **fields)
    if kind == "MultipleChoice":
        columns = {name: column[None] for name, column in columns.items()}
    return model.eval()(**columns)


def exported(run, folder):
    here("--mode=export", f"--workdir={run}", f"--output={folder}")
    return folder


def test_pre_training_predicts_masked_pieces(pretrained):
    lines = metrics.read_metrics(pretrained, "train")
    assert lines[-1]["masked_lm_loss"] < lines[0]["masked_lm_loss"]
    assert "next_sentence_loss" not in lines[0]
    assert (pretrained / "merges.txt").exists()
    ids = tokenization.special_ids(tokenization.load(pretrained / "tokenizer.json"))
    assert (ids.cls, ids.pad, ids.sep) == (0, 1, 2)
    (guesses,) = bert_jax.load(pretrained).fill_mask("the quick<mask> fox")
    assert len(guesses) == 5 and all(guess["id"] > 4 for guess in guesses)


@pytest.mark.slow
def test_pairs_are_learnt_and_the_run_is_asked_in_every_mode(config, tmp_path):
    run, source = tmp_path / "run", f"--input={tmp_path / 'dev.jsonl'}"
    runs.run(config(), run, PAIRS, "--config.checkpoint.save_every=60")
    accuracy = metrics.read_metrics(run, "dev")[-1]["accuracy"]
    assert accuracy > 0.9
    at = f"--workdir={run}"
    out, _ = here("--mode=predict", at, source)
    gold = [json.loads(line)["label"] for line in (tmp_path / "dev.jsonl").open()]
    found = [json.loads(line)["label"] for line in out.splitlines()]
    assert np.mean(np.array(found) == gold) == pytest.approx(accuracy)
    out, _ = here("--mode=evaluate", at)
    assert json.loads(out)["accuracy"] == pytest.approx(accuracy)
    written = tmp_path / "vectors.jsonl"
    last = "--config.predict.layers=(-1,)"
    here("--mode=extract", at, source, last, f"--output={written}")
    first = json.loads(written.read_text().splitlines()[0])
    assert first["features"][0]["token"] == "<s>"
    scores = bert_jax.load(run).predict([PAIR])[0]["scores"]
    folder = exported(run, tmp_path / "model")
    logits = theirs(folder, "SequenceClassification", *PAIR.values()).logits
    shares = logits.softmax(-1)[0].tolist()
    assert_close(list(scores.values()), shares)


@pytest.mark.slow
def test_answers_of_an_export_are_those_of_transformers(config, tmp_path):
    answer = {"text": "fox", "answer_start": 4}
    asked = {"id": "1", "question": QUESTION["question"], "answers": [answer]}
    paragraph = {"context": QUESTION["context"], "qas": [asked]}
    data = {"version": "1.1", "data": [{"title": "", "paragraphs": [paragraph]}]}
    own, run = config("squad"), tmp_path / "run"
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(data))
    runs.run(own, run, *SHORT, "--config.train.num_steps=30")
    assert metrics.read_metrics(run, "dev")[-1]["exact_match"] == 100
    (found,) = bert_jax.load(run).predict([QUESTION])
    assert (found["answer"], found["start"], found["end"]) == ("fox", 4, 7)
    folder = exported(run, tmp_path / "model")
    both = theirs(folder, "QuestionAnswering", *QUESTION.values())
    tokens = tokenization.of_folder(folder).encode(*QUESTION.values())
    first, last = int(both.start_logits.argmax()), int(both.end_logits.argmax())
    assert (tokens.offsets[first][0], tokens.offsets[last][1]) == (4, 7)


@pytest.mark.parametrize("task", ["roberta:size=tiny", "finetune/text:model=roberta"])
def test_padding_with_another_id_is_refused_at_the_start(pretrained, tmp_path, task):
    pieces = json.loads((pretrained / "vocab.json").read_text())
    pieces["<s>"], pieces["<pad>"] = 1, 0
    (tmp_path / "vocab.json").write_text(json.dumps(pieces))
    (tmp_path / "merges.txt").write_bytes((pretrained / "merges.txt").read_bytes())
    own = tmp_path / "own.py"
    own.write_text(f'extends = "{task}"\n\ndef get_config(c):\n    return c\n')
    vocabulary = f"--config.tokenizer.vocab_file={tmp_path / 'vocab.json'}"
    _, err = runs.run(own, tmp_path / "run", vocabulary, status=2)
    assert "the vocabulary's padding has the id 0" in err and err.count("\n") == 1
    assert not (tmp_path / "run" / "config.json").exists()
