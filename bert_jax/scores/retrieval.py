"""Scores of ranked documents, as TREC defines them, each the mean over queries."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

LEFT_OUT = -np.inf  # the gain of a document that a query does not search


def retrieval_scores(
    similarities: Float[np.ndarray, "queries documents"],
    judgements: Sequence[Mapping[int, float]],
) -> dict[str, float]:
    """Returns `ndcg@10`, `mrr@10` and `recall@100`.

    Documents of equal similarity keep their order. Queries without a relevant document
    do not count.

    Args:
      judgements: Gains of documents by index, for each query: above 0 if relevant.
        `LEFT_OUT` ranks a document last, as if it were not there.
    """
    found: dict[str, list[float]] = {"ndcg@10": [], "mrr@10": [], "recall@100": []}
    for row, judged in zip(similarities, judgements, strict=True):
        gains = np.zeros(len(row))
        gains[[*judged]] = [*judged.values()]
        order = np.argsort(np.where(gains == LEFT_OUT, np.inf, -row), kind="stable")
        gains = np.maximum(gains, 0)
        if not gains.any():
            continue
        ranked = gains[order]
        first = int(np.argmax(ranked > 0)) + 1
        found["ndcg@10"].append(_dcg(ranked[:10]) / _dcg(-np.sort(-gains)[:10]))
        found["mrr@10"].append(1 / first if first <= 10 else 0.0)
        found["recall@100"].append(np.sum(ranked[:100] > 0) / np.sum(gains > 0))
    return {name: float(np.mean(values)) for name, values in found.items() if values}


def unit_vectors(
    vectors: Float[np.ndarray, "texts size"],
) -> Float[np.ndarray, "texts size"]:
    """Divides vectors by their lengths."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _dcg(gains: Float[np.ndarray, " ranks"]) -> float:
    return float(np.sum(gains / np.log2(np.arange(len(gains)) + 2)))
