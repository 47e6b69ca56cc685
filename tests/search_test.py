"""Search on vectors, against one large product and against loops."""

import re

import numpy as np
import pytest

from bert_jax import search
from tests.micro import error_line


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(search, "_QUERIES", 3)
    monkeypatch.setattr(search, "_TEXTS", 4)


def cosines(queries, vectors):
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, vectors)]
    return unit[0] @ unit[1].T


@pytest.mark.parametrize("texts", [1, 3, 4, 11, 40])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_nearest_texts_are_those_of_one_product(small_blocks, texts, k):
    rng = np.random.default_rng(texts)
    queries, vectors = rng.normal(size=(7, 5)), rng.normal(size=(texts, 5))
    scores, indices = search.top_k(queries, vectors, k)
    every = cosines(queries, vectors)
    expected = np.argsort(-every, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, expected)
    kept = np.take_along_axis(every, expected, axis=1)
    np.testing.assert_allclose(scores, kept, rtol=1e-5, atol=1e-6)


def test_first_of_equal_texts_come_first(small_blocks):
    """Also where not all of them are found, in any block."""
    vectors = np.eye(3, dtype=np.float32)[[0, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0]]
    for k in range(1, 12):
        (found,) = search.top_k(vectors[:1], vectors, k).indices
        equal = [0, 2, 4, 5, 7, 8, 9, 10, 1, 3, 6]
        assert found.tolist() == equal[:k]


def test_text_without_a_vector_is_like_none():
    scores, indices = search.top_k(
        np.ones((1, 2)), np.array([[0.0, 0.0], [-1.0, 0.0]]), 5
    )
    assert indices.tolist() == [[0, 1]]
    np.testing.assert_allclose(scores, [[0, -(0.5**0.5)]], rtol=1e-6)
    with pytest.raises(ValueError, match="k=0: must be at least 1"):
        search.top_k(np.ones((1, 2)), np.ones((1, 2)), 0)


def test_duplicates_are_all_pairs(small_blocks):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(13, 2))
    found = search.find_duplicates(vectors, 0.8)
    every = cosines(vectors, vectors)
    expected = {(i, j) for i in range(13) for j in range(i) if every[j, i] >= 0.8}
    assert {(pair.second, pair.first) for pair in found} == expected and expected
    assert [x.score for x in found] == sorted((x.score for x in found), reverse=True)
    for first, second, score in found:
        assert score == pytest.approx(every[first, second], rel=1e-5)


class Angles:
    """A model whose vectors are the angles that texts name."""

    labels = ("0", "1")

    def sentences(self, texts, prompt=None):
        degrees = [float(re.sub("[a-z]", "", x)) + len(prompt or "") for x in texts]
        turns = np.deg2rad(degrees)
        return np.stack([np.cos(turns), np.sin(turns)], axis=1)

    def predict(self, rows):
        scores = [float(row["text_b"]) / 100 for row in rows]
        return [{"scores": {"0": 1 - x, "1": x}} for x in scores]


PAIRS = [
    {"text": "a0", "text_b": "10"},
    {"text": "a0", "text_b": "12"},  # another partner of the same text
    {"text": "b40", "text_b": "39"},
    {"text": "c80", "text_b": "b40"},  # a text too
    {"text": "d81", "text_b": "75"},
]


def mined(**named):
    rows = search.mine_negatives(PAIRS, Angles(), **named)
    assert all([*row] == ["text", "positive", "negative"] for row in rows)
    return [tuple(row.values()) for row in rows]


def test_negatives_are_near_but_no_partners():
    assert mined(margin=0.0) == [
        ("a0", "10", "39"),
        ("a0", "12", "39"),
        ("b40", "39", "12"),
        ("c80", "b40", "39"),  # 75 is nearer than b40
        ("d81", "75", "b40"),
    ]
    # Cosines of at most 0.75 of the pair's own. Everything is near b40.
    assert mined(margin=0.25) == [
        ("a0", "10", "75"),
        ("a0", "12", "75"),
        ("c80", "b40", "12"),
        ("d81", "75", "39"),
    ]


def test_negatives_are_counted_skipped_and_bounded():
    assert mined(margin=0.0, count=2)[:2] == [("a0", "10", "39"), ("a0", "10", "b40")]
    assert mined(margin=0.0, skip=2)[0] == ("a0", "10", "75")
    assert mined(margin=0.0, candidates=2) == [("d81", "75", "b40")]
    assert mined(margin=2.1) == []
    # 80 degrees more: everything else is nearer to a0 than its own partners.
    assert mined(margin=0.0, prompts=("x" * 80, None))[0] == ("b40", "39", "12")


def test_pairs_that_are_none():
    with pytest.raises(ValueError, match="row 1: no 'text_b'"):
        search.mine_negatives([PAIRS[0], {"text": "a"}], Angles())


def test_rows_for_a_cross_encoder():
    """A positive of one pair is no negative of the same text."""
    triples = [
        {"text": "a", "positive": "b", "negative": "c"},
        {"text": "a", "positive": "b", "negative": "d"},
        {"text": "a", "positive": "c", "negative": "d"},
    ]
    found = {(x["text"], x["text_b"]): x["label"] for x in search.judged_rows(triples)}
    assert found == {("a", "b"): 1, ("a", "c"): 1, ("a", "d"): 0}


def test_reranking_orders_by_the_last_class():
    scores, order = search.rerank("q", ["10", "90", "50", "90"], Angles())
    assert order.tolist() == [[1, 3, 2, 0]]
    np.testing.assert_allclose(scores, [[0.9, 0.9, 0.5, 0.1]])


def test_models_and_vectors_that_are_wrong():
    class Masks(Angles):
        def predict(self, rows):
            return [{"masks": []} for _ in rows]

    assert "no score to a pair" in error_line(search.rerank, "q", ["a"], Masks())
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            search.top_k(np.ones((1, 2)), np.array([[1.0, 1.0], [wrong, 1.0]]))
    equal = np.repeat(np.random.default_rng(0).normal(size=(5, 7)), 2, axis=0)
    assert len(search.find_duplicates(equal, 1.0)) == 5


def test_reader_of_inference_orders_by_entailment():
    class Inference(Angles):
        labels = ("entailment", "not_entailment")

        def predict(self, rows):
            each = [int(row["text_b"]) / 100 for row in rows]
            return [
                {"scores": {"entailment": x, "not_entailment": 1 - x}} for x in each
            ]

    _, order = search.rerank("q", ["10", "90"], Inference())
    assert order.tolist() == [[1, 0]]
