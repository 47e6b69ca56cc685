"""The tasks of examples/: their losses by NumPy, runs, and answers to rows."""

import json
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import configuration
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.task import Task
from bert_jax.workdir import metrics
from examples.answerable import Answerable
from examples.multi_task import TABLES, MultiTask
from examples.two_labels import COLUMNS, TwoLabels
from tests.micro_data import WORDS, write_inputs
from tests.runs import ROOT, here, run

SMALL = (
    *("--config.model.hidden_size=32", "--config.model.num_hidden_layers=1"),
    *("--config.model.num_attention_heads=2", "--config.model.intermediate_size=64"),
    *("--config.model.max_position_embeddings=32", "--config.task.max_seq_length=32"),
    *("--config.tokenizer.vocab_file=in/vocab.txt", "--config.train.batch_size=8"),
    *("--config.train.num_steps=160", "--config.optimizer.learning_rate=0.005"),
    "--config.evaluate.batch_size=8",
)
TONES = {"good": WORDS[0], "bad": WORDS[1]}
TOPICS = {"sea": WORDS[2], "sky": WORDS[3], "land": WORDS[4]}


def path(name: str) -> str:
    return str(ROOT / "examples" / f"{name}.py")


def mean_loss(task: Task) -> tuple[dict, dict, float]:
    """Returns a batch, the model's logits for it without dropout, and their loss."""
    params = nn.meta.unbox(task.init_params(jax.random.key(0)))
    params = jax.tree.map(lambda x: 20.0 * x, params)  # logits that differ
    batch = jax.tree.map(jnp.asarray, next(task.batches(0, slice(None), 0)))
    logits = jax.device_get(task.logits(params, batch))
    loss, weight = task.loss(params, batch, None), task.loss_weights(batch)
    (name,) = loss
    return jax.device_get(batch), logits, float(loss[name] / weight[name])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Two tables whose labels are words of their texts."""
    monkeypatch.chdir(tmp_path)
    write_inputs("text", tmp_path)
    rng = np.random.default_rng(0)
    for table, words in (("topic", TOPICS), ("tone", TONES)):
        for split, count in (("train", 40), ("dev", 12)):
            lines = ["text,label"]
            for label in rng.choice([*words], count):
                text = [words[label], *rng.choice(WORDS[5:], rng.integers(1, 9))]
                lines.append(f"{' '.join(text)},{label}")
            (tmp_path / f"{table}_{split}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_two_tables_share_an_encoder(tables):
    files = [f"--config.task.{x}_file={{}}_{x}.csv" for x in ("train", "dev")]
    _, error = run(path("multi_task"), tables / "run", *SMALL, *files)
    assert metrics.read_metrics(tables / "run", "dev")[-1]["accuracy"] > 0.8, error
    lines = (tables / "run" / "predictions" / "dev.jsonl").read_text().splitlines()
    assert len(lines) == 24
    for line in map(json.loads, lines):
        table = line["gold"].partition("/")[0]
        own = {n: x for n, x in line["scores"].items() if n.startswith(f"{table}/")}
        assert line["label"] == max(own, key=own.__getitem__)
        assert sum(own.values()) == pytest.approx(1.0)  # no share for the other table's
    rows = tables / "rows.jsonl"
    rows.write_text(json.dumps({"text": TONES["bad"], "table": "tone"}) + "\n")
    ask = (f"--config={path('multi_task')}", "--workdir=run", "--mode=predict")
    out, _ = here(*ask, "--input=rows.jsonl")
    assert json.loads(out)["label"] == "tone/bad"
    smoothed = (*SMALL, "--config.task.label_smoothing=0.1")
    _, error = run(path("multi_task"), "no", *smoothed, status=2)
    assert "config.task.label_smoothing: two tables require 0.0" in error
    rows.write_text(json.dumps({"text": "a"}) + "\n")
    _, error = here(*ask, "--input=rows.jsonl", status=2)
    assert '"table" is required, one of topic, tone' in error


def test_loss_of_two_tables(tables):
    files = [f"--config.task.{x}_file={{}}_{x}.csv" for x in ("train", "dev")]
    task = Finetuning(MultiTask, configuration.load_config("in/micro.py", files))
    task.resolve()
    batch, logits, loss = mean_loss(task)
    assert {*batch["table"]} == {0, 1} and task.labels[0] == "tone/bad"
    losses, weights = [], []
    for row, (table, label) in enumerate(
        zip(batch["table"], batch["label"], strict=True)
    ):
        name = [*TABLES][table]
        own = [i for i, each in enumerate(task.labels) if each.startswith(f"{name}/")]
        losses.append(-log_softmax(logits["logits"][row, own])[own.index(label)])
        weights.append(TABLES[name])
    assert np.std(losses) > 0.1
    assert loss == pytest.approx(np.average(losses, weights=weights), rel=1e-5)


@pytest.fixture
def two_columns(tmp_path, monkeypatch):
    """A table with two labels, each a word of the text."""
    monkeypatch.chdir(tmp_path)
    write_inputs("text", tmp_path)
    rng = np.random.default_rng(0)
    for split, count in (("train", 80), ("dev", 24)):
        lines = ["tone,text,topic"]
        for tone, topic in zip(
            rng.choice([*TONES], count), rng.choice([*TOPICS], count), strict=True
        ):
            words = [TONES[tone], TOPICS[topic], *rng.choice(WORDS[5:], 3)]
            lines.append(f"{tone},{' '.join(words)},{topic}")
        (tmp_path / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


FILES = ("--config.task.train_file=train.csv", "--config.task.dev_file=dev.csv")


def test_two_labels_of_a_text(two_columns):
    run(path("two_labels"), "run", *SMALL, *FILES, "--config.train.num_steps=600")
    scores = metrics.read_metrics(two_columns / "run", "dev")[-1]
    assert scores["accuracy"] > 0.9
    ask = (f"--config={path('two_labels')}", "--workdir=run", "--mode=predict")
    out, _ = here(*ask, "--input=dev.csv")
    right = []
    for answer, line in zip(
        map(json.loads, out.splitlines()),
        Path("dev.csv").read_text().splitlines()[1:],
        strict=True,
    ):
        tone, text, topic = line.split(",")
        assert answer["text"] == text
        for name in COLUMNS:
            shares = answer[f"{name}_scores"]
            assert sum(shares.values()) == pytest.approx(1.0)
            assert answer[name] == max(shares, key=shares.__getitem__)
        right.append((answer["tone"], answer["topic"]) == (tone, topic))
    assert np.mean(right) == pytest.approx(scores["accuracy"])
    test = [{"text": "a", "topic": "sea", "tone": None}, {"text": "b"}]
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in test))
    more = ("--mode=evaluate", "--config.task.test_file=test.jsonl")
    run(path("two_labels"), "run", *more, "--config.evaluate.splits=('test',)")
    Path("other.csv").write_text("text,topic,tone\na,sea,odd\n")
    given = ("--config.task.train_file=train.csv", "--config.task.dev_file=other.csv")
    _, error = run(path("two_labels"), "no", *SMALL, *given, status=2)
    assert "other.csv:2: tone is 'odd'; the training data has bad, good" in error


def test_loss_of_two_labels(two_columns):
    task = Finetuning(TwoLabels, configuration.load_config("in/micro.py", FILES))
    task.resolve()
    assert task.labels == tuple(
        [f"tone={x}" for x in sorted(TONES)] + [f"topic={x}" for x in sorted(TOPICS)]
    )
    batch, logits, loss = mean_loss(task)
    losses = np.zeros(len(batch["topic"]))
    for name, own in (("tone", slice(0, 2)), ("topic", slice(2, 5))):
        shares = log_softmax(logits["logits"][:, own])
        losses -= np.take_along_axis(shares, batch[name][:, None], 1)[:, 0]
    assert np.std(losses) > 0.1
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_head_says_whether_there_is_an_answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs("squad2", tmp_path)
    task = Finetuning(Answerable, configuration.load_config("in/micro.py", ()))
    task.resolve()
    batch, logits, loss = mean_loss(task)
    expected = []
    for row, length in enumerate(batch["input_mask"].sum(axis=-1)):
        own = 0.0
        for side in ("start", "end"):
            scores = log_softmax(logits[f"{side}_logits"][row, :length])
            own -= scores[batch[f"{side}_positions"][row]] / 2
        null, logit = batch["start_positions"][row] == 0, logits["logits"][row, 0]
        expected.append(own + np.log1p(np.exp(-logit if null else logit)))
    assert np.std(expected) > 0.1
    assert loss == pytest.approx(np.mean(expected), rel=1e-5)
    # The head's logit moves the odds of "no answer", and nothing else.
    examples, features = task.examples("dev"), task.encode_examples("dev")
    zeros = [
        dict.fromkeys(
            ("start_logits", "end_logits"),
            np.zeros(len(f.columns["input_ids"]), np.float32),
        )
        for f in features
    ]

    def answer(logit):
        outputs = [each | {"logits": np.float32([logit])} for each in zeros]
        return task.definition.decode_answers(examples, features, outputs)

    for low, high in zip(answer(0.0), answer(2.5), strict=True):
        assert high.null_odds - low.null_odds == pytest.approx(2.5)
        assert high.guesses == low.guesses
