"""Ranked documents against TREC's program (pytrec_eval 0.5.11, on these numbers)."""

import numpy as np
import pytest

from bert_jax.scores import retrieval


def test_scores_are_those_of_trec_eval():
    rng = np.random.default_rng(3)
    similarities = rng.normal(size=(5, 130))
    judgements = [
        dict(zip(*map(np.ndarray.tolist, drawn), strict=True))
        for drawn in (
            (rng.choice(130, 4, replace=False), rng.integers(0, 4, 4) * 1.0)
            for _ in range(5)
        )
    ]
    found = retrieval.retrieval_scores(similarities, judgements)
    # Reciprocal ranks 1/6, 1/117, 1/6, 1/10 and 1/91, of which those within 10 count.
    assert found == pytest.approx(
        {
            "ndcg@10": 0.0920475280020833,
            "mrr@10": (2 / 6 + 1 / 10) / 5,
            "recall@100": 0.5333333333333333,
        }
    )


def test_query_without_a_relevant_document_does_not_count():
    similarities = np.array([[0.1, 0.9], [0.3, 0.2]])
    found = retrieval.retrieval_scores(similarities, [{0: 0.0}, {1: 1.0}])
    assert found["mrr@10"] == 0.5 and found["recall@100"] == 1.0
    assert retrieval.retrieval_scores(similarities, [{}, {0: 0.0}]) == {}


def test_document_that_is_left_out_has_no_rank():
    similarities = np.array([[1.0, 0.9, 0.0]])
    found = retrieval.retrieval_scores(similarities, [{0: retrieval.LEFT_OUT, 1: 1.0}])
    assert found == {"ndcg@10": 1.0, "mrr@10": 1.0, "recall@100": 1.0}
    assert retrieval.retrieval_scores(similarities, [{0: retrieval.LEFT_OUT}]) == {}
