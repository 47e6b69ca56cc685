"""The arithmetic of examples/focal.py and examples/spans.py, against NumPy by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import configuration
from bert_jax.data import masking
from examples import focal, spans


def test_focal_loss():
    rng = np.random.default_rng(0)
    logits, labels = 3 * rng.normal(size=(5, 7)), rng.integers(0, 7, 5)
    share = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    p = share[np.arange(5), labels]
    expected = (1 - p) ** 2 * -np.log(p)
    found = focal.focal_loss(jnp.float32(logits), jnp.asarray(labels))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    sure = jnp.array([[60.0, 0, 0]])  # no NaN where the model is right
    gradient = jax.grad(lambda x: focal.focal_loss(x, jnp.array([0])).sum())(sure)
    assert np.isfinite(gradient).all()


def test_lengths_of_spans_are_spanberts():
    """fairseq's span_masking_dataset: the chances of 1 to 10, normalised."""
    chances = [0.2 * 0.8**i for i in range(10)]
    chances = np.array(chances) / sum(chances)
    assert chances @ np.arange(1, 11) == pytest.approx(3.8, abs=0.05)  # section 3.1
    numbers = (np.arange(100_000) + 0.5) / 100_000
    counts = np.bincount(spans.lengths(numbers), minlength=11)[1:]
    np.testing.assert_allclose(counts / len(numbers), chances, atol=2e-5)
    assert spans.lengths(np.array([0.0, 1 - 1e-16])).tolist() == [1, 10]


def test_spans_of_words_within_the_budget():
    """Of each row, from a loop that follows the words one by one."""
    rows, size, vocab = 300, 60, 1000
    rng = np.random.default_rng(0)
    ids = rng.integers(10, vocab, (rows, size))
    continuation = np.arange(vocab) > 700
    candidates = np.ones(ids.shape, bool)
    candidates[:, [0, 25, -1]] = False  # [CLS] and [SEP]
    budget = rng.integers(1, 12, rows)
    texts = masking.Texts(ids, candidates, budget, 12, 4, continuation)
    drawn = []

    def numbers(count):
        drawn.append(
            masking.row_uniforms(5, b"mask", 0 * budget, np.arange(rows), count)
        )
        return drawn[0]

    shares = configuration.with_defaults().masking
    chosen, new = spans.spans(texts, numbers, shares)
    order, words, action, _ = np.split(drawn[0], 4, axis=1)
    kinds = {"mask": 0, "random": 0, "same": 0}
    for row in range(rows):
        groups: list[list[int]] = []  # the words of the row
        for place in range(size):
            if not candidates[row, place]:
                continue
            inside = continuation[ids[row, place]] and groups
            if inside and groups[-1][-1] == place - 1:
                groups[-1].append(place)
            else:
                groups.append([place])
        taken: set[int] = set()
        for index in sorted(range(len(groups)), key=lambda i: order[row, groups[i][0]]):
            start = groups[index][0]
            if start in taken or len(taken) == budget[row]:
                continue
            span: list[int] = []
            for word in groups[index : index + spans.lengths(words[row, start])]:
                for place in word:
                    whole = len(taken) + len(span) == budget[row]
                    if whole or place in taken or place != start + len(span):
                        break
                    span.append(place)
                else:
                    continue
                break
            taken |= set(span)
            if action[row, start] < 0.8:
                kind = "mask"
                assert (new[row, span] == 4).all()
            else:
                kind = "random" if action[row, start] < 0.9 else "same"
                assert (new[row, span] == ids[row, span]).all() == (kind == "same")
            kinds[kind] += 1
        assert set(np.flatnonzero(chosen[row])) == taken and len(taken) == budget[row]
    total = sum(kinds.values())
    assert kinds["mask"] / total == pytest.approx(0.8, abs=0.06)
    assert kinds["random"] / total == pytest.approx(0.1, abs=0.05)
    assert (new[~chosen] == ids[~chosen]).all()
