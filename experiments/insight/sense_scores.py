"""Do the vectors of one sense lie together? Cosines, and each one's nearest other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

PERMUTATIONS = 10_000
# Cosines that differ by less are equal: the difference is rounding.
_TIE = 1e-6


class Scores(NamedTuple):
    """How well the vectors separate the senses.

    Attributes:
      within: mean cosine of two sentences of the same sense.
      between: mean cosine of two sentences of different senses.
      nearest: share of the sentences whose nearest other one has their sense.
      p: how often labels dealt out at random do as well (one-sided).
    """

    within: float
    between: float
    nearest: float
    p: float


def scores(
    vectors: Float[np.ndarray, "sentences size"], senses: Sequence[str], seed: int = 0
) -> Scores:
    """Scores one set of vectors, one of each sentence.

    Args:
      senses: the sense of each sentence; at least two, with two sentences each.
    """
    labels = np.unique(list(senses), return_inverse=True)[1]
    cosines = cosine(vectors)
    same = labels[:, None] == labels
    others = ~np.eye(len(labels), dtype=bool)
    neighbours = nearest(cosines)
    found = agreement(neighbours, labels[None])[0]
    rng = np.random.default_rng(seed)
    dealt = rng.permuted(np.tile(labels, (PERMUTATIONS, 1)), axis=1)
    # As many of them are as good as this, up to rounding; the labels themselves count.
    as_good = int(np.sum(agreement(neighbours, dealt) >= found - 1e-9))
    return Scores(
        float(cosines[same & others].mean()),
        float(cosines[~same].mean()),
        float(found),
        (1 + as_good) / (1 + PERMUTATIONS),
    )


def chance(senses: Sequence[str]) -> float:
    """What `nearest` is on average if labels are dealt out at random."""
    counts = np.unique(list(senses), return_counts=True)[1]
    return float(np.sum(counts * (counts - 1)) / (len(senses) * (len(senses) - 1)))


def cosine(
    vectors: Float[np.ndarray, "sentences size"],
) -> Float[np.ndarray, "sentences sentences"]:
    """The cosine of every two vectors; 0 with a vector of zeros."""
    wide = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(lengths > 0, lengths, 1)
    return unit @ unit.T


def nearest(
    cosines: Float[np.ndarray, "sentences sentences"],
) -> Float[np.ndarray, "sentences sentences"]:
    """The weights of each sentence's nearest others: 1 in all, shared among equals."""
    apart = cosines.copy()
    np.fill_diagonal(apart, -np.inf)
    best: Bool[np.ndarray, "sentences sentences"]
    best = apart >= apart.max(axis=1, keepdims=True) - _TIE
    return best / best.sum(axis=1, keepdims=True)


def agreement(
    neighbours: Float[np.ndarray, "sentences sentences"],
    labels: Int[np.ndarray, "labellings sentences"],
) -> Float[np.ndarray, "labellings"]:
    """The share of the sentences that have their neighbour's label, by labelling."""
    total = np.zeros(len(labels))
    for label in np.unique(labels):
        member = (labels == label).astype(np.float64)
        total += ((member @ neighbours) * member).sum(axis=1)
    return total / labels.shape[1]
