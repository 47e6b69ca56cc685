"""The surest mistakes, beside SciPy's softmax."""

import numpy as np
from scipy.special import softmax

from bert_jax.tasks import mistakes

NAMES = ("bad", "good", "neither")


def test_the_surest_come_first_and_right_answers_never():
    rng = np.random.default_rng(0)
    logits = 4 * rng.standard_normal((50, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 50)
    found = mistakes.surest(logits, labels)
    shares = softmax(logits.astype(np.float64), axis=1)
    wrong = np.flatnonzero(shares.argmax(axis=1) != labels)
    assert sorted(x.record for x in found) == wrong.tolist()
    sure = sorted(shares[wrong].max(axis=1), reverse=True)
    np.testing.assert_allclose([x.probability for x in found], sure)
    assert all(x.label == labels[x.record] != x.guess for x in found)


def test_equally_sure_ones_stay_in_order():
    logits = np.tile(np.array([[0.0, 1.0, 0.0]], np.float32), (4, 1))
    found = mistakes.surest(logits, np.array([0, 1, 2, 0]))
    assert [x.record for x in found] == [0, 2, 3]


def test_a_table_shows_ten_on_a_line_each():
    logits = np.zeros((12, 3), np.float32)
    logits[np.arange(12), 1] = np.arange(12)
    texts = [f"text {n}\nof two\tlines" for n in range(11)] + ["long " * 50]
    found = mistakes.surest(logits, np.full(12, 2))
    said, _, header, _, *rows = mistakes.table(found, NAMES, texts, "p.jsonl").split(
        "\n"
    )
    # Where all logits are equal the first class is the guess: a mistake, too.
    assert said == "mistakes, the surest first (10 of 12; all: p.jsonl)"
    assert header.split() == ["probability", "predicted", "true", "text"]
    assert len(rows) == 10 and rows[0].endswith("long long…")
    assert rows[1].split() == ["1.000", "good", "neither", "text", "10", "of", "two",
                               "lines"]  # fmt: skip
    assert mistakes.table([], NAMES, texts, "p.jsonl") == ""
