"""MinHash against the similarity itself, and clusters against a transcription."""

import random

import numpy as np
import pytest

from bert_jax.data.cleaning import grams, minhash


def text(rng, words):
    return [f"w{rng.randrange(3000)}" for _ in range(words)]


def changed(rng, words, share):
    """The words, this share of them replaced."""
    return [f"x{rng.random()}" if rng.random() < share else word for word in words]


def signature(words):
    return minhash.signature(grams.words(" ".join(words).replace(".", "q")))


def jaccard(one, other):
    """Of the sets of five words in a row."""
    sets = [{tuple(w[i : i + 5]) for i in range(len(w) - 4)} for w in (one, other)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_estimates_are_true_on_average_and_in_their_spread():
    rng = random.Random(0)
    errors = []
    for _ in range(150):
        one = text(rng, rng.randint(20, 1500))
        other = changed(rng, one, rng.random() * 0.15)
        share = jaccard(one, other)
        found = minhash.similarity(signature(one), signature(other)[None])[0]
        deviation = (share * (1 - share) / minhash.NUMBERS) ** 0.5
        errors.append((found - share) / max(deviation, 1e-3))
    assert abs(np.mean(errors)) < 4 / 150**0.5
    assert 0.7 < np.std(errors) < 1.3


def test_the_chance_to_share_a_band():
    """That of the docstring: 1 - (1 - s^8)^14."""
    rng = random.Random(1)
    shared, expected = 0, 0.0
    for _ in range(200):
        one = text(rng, 300)
        other = changed(rng, one, 0.035)
        bands = [signature(words).reshape(14, 8) for words in (one, other)]
        shared += (bands[0] == bands[1]).all(axis=1).any()
        expected += 1 - (1 - jaccard(one, other) ** 8) ** 14
    assert 0.3 < expected / 200 < 0.9
    assert abs(shared - expected) < 4 * (200 * 0.25) ** 0.5


def test_short_and_empty_documents():
    assert (signature(["a", "b"]) == signature(["a", "b"])).all()
    assert (signature(["a", "b"]) != signature(["b", "a"])).mean() > 0.9
    assert signature([]).shape == (112,)


def slow_clusters(signatures, threshold):
    """As `minhash.clusters`, pair by pair."""
    count = len(signatures)
    first = list(range(count))
    for i in range(count):
        for j in range(i):
            same = signatures[i] == signatures[j]
            if same.reshape(14, 8).all(axis=1).any() and same.mean() >= threshold:
                low, high = sorted((first[i], first[j]))
                first = [low if own == high else own for own in first]
    return first


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_those_of_all_pairs_in_any_order(seed):
    rng = np.random.default_rng(seed)
    signatures = rng.integers(0, 9, (40, 112)).astype(np.uint16)
    for row in range(5, 40):  # chains of likeness, some short of the threshold
        copied = rng.random(112) < rng.choice([0.5, 0.75, 0.85, 1.0])
        signatures[row, copied] = signatures[rng.integers(0, row), copied]
    expected = slow_clusters(signatures, 0.8)
    assert 1 < len(set(expected)) < 40
    assert minhash.clusters(signatures, 0.8).tolist() == expected
    order = rng.permutation(40)
    found = minhash.clusters(signatures[order], 0.8)
    one = {frozenset(np.flatnonzero(np.equal(expected, f)).tolist()) for f in expected}
    two = {frozenset(order[found == f].tolist()) for f in found}
    assert one == two


def test_the_firsts_of_clusters_are_clusters_of_their_own():
    rng = np.random.default_rng(9)
    signatures = np.repeat(rng.integers(0, 2**16, (20, 112)), 5, 0).astype(np.uint16)
    signatures[rng.random(signatures.shape) < 0.05] += 1
    firsts = np.unique(minhash.clusters(signatures, 0.8))
    assert len(firsts) < 100
    left = minhash.clusters(signatures[firsts], 0.8)
    assert left.tolist() == list(range(len(firsts)))
