"""Scores by class and the confusion matrix, beside scikit-learn's."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics, utils

from bert_jax.tasks.text import Text, class_tables
from configs.finetune import text as text_config

NAMES = ("bad", "good", "<&>", "never")


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)  # the last class has neither labels nor guesses
    return labels, np.where(rng.random(200) < 0.6, labels, rng.integers(0, 3, 200))


def test_scores_are_those_of_scikit_learn(drawn):
    found = metrics.confusion_matrix(*drawn, labels=range(4))
    scores, matrix = class_tables(NAMES, found).split("\n\n")
    each = metrics.precision_recall_fscore_support(
        *drawn, labels=range(4), zero_division=0
    )
    for line, name, *values in zip(scores.splitlines()[2:], NAMES, *each, strict=True):
        cells = re.split(r"\s{2,}", line.strip())
        assert cells == [
            name,
            *(f"{value:.4f}" for value in values[:3]),
            str(values[3]),
        ]
    rows = [line.split()[1:] for line in matrix.splitlines()[2:]]
    assert rows == [[str(n) for n in row] for row in found]


@pytest.fixture
def task(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    rows = [f"{'a' * (n + 1)},{'xxxy'[n % 4]}" for n in range(40)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows, rows[0]]))
    config = text_config.get_config("tiny")
    config.tokenizer.vocab_file = str(tmp_path / "vocab.txt")
    config.task.train_file = str(tmp_path / "train.csv")
    config.task.dev_fraction = 0.2
    config.task.class_weights = "balanced"
    return Text(config)


def test_dev_is_held_out_of_each_class(task):
    task.resolve()
    dev, train = (
        [(example["text"], example["label"]) for example in task.examples(split)]
        for split in ("dev", "train")
    )
    assert len(dev) + len(train) == 41 and not set(dev) & set(train)
    labels = [label for _, label in dev]
    assert labels.count(0) == 6 and labels.count(1) == 2  # of 31 and 10


def test_class_weights_are_those_of_scikit_learn(task):
    task.resolve()
    labels = np.array([example["label"] for example in task.examples("train")])
    expected = utils.class_weight.compute_class_weight(
        "balanced", classes=np.unique(labels), y=labels
    )
    batch = {"label": labels, "row_weights": np.ones(len(labels), np.float32)}
    batch["row_weights"][0] = 0  # padding
    found = np.asarray(task.weights({k: jnp.asarray(v) for k, v in batch.items()}))
    np.testing.assert_allclose(found[1:], expected[labels][1:], rtol=1e-6)
    assert found[0] == 0
