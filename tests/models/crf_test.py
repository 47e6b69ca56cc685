"""The CRF against every path, an independent recursion and its own derivatives."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bert_jax.models.crf import Crf, Transitions, log_likelihood, marginals, viterbi
from tests.close import assert_close

TAGS, WORDS = 3, 4
# Whole, short, with a mark before it and a gap, and empty.
MASKS = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]])


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(len(MASKS), WORDS, TAGS)).astype(np.float32)
    tags = rng.integers(0, TAGS, (len(MASKS), WORDS))
    shapes = ((TAGS, TAGS), (TAGS,), (TAGS,))
    drawn = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return jnp.asarray(scores), jnp.asarray(tags), Transitions(*map(jnp.asarray, drawn))


def score(path, own, transitions):
    """Of one path, in double precision, by its definition."""
    between, first, last = (np.float64(x) for x in transitions)
    total = first[path[0]] + last[path[-1]]
    total += sum(np.float64(own[i, tag]) for i, tag in enumerate(path))
    return total + sum(between[a, b] for a, b in itertools.pairwise(path))


def every_path(own, transitions):
    paths = list(itertools.product(range(TAGS), repeat=len(own)))
    return paths, np.array([score(path, own, transitions) for path in paths])


def test_likelihood_and_best_path_are_those_of_all_paths(given):
    scores, tags, transitions = given
    found = jax.jit(log_likelihood)(scores, tags, MASKS, transitions)
    best = np.asarray(jax.jit(viterbi)(scores, MASKS, transitions))
    for row, mask in enumerate(MASKS):
        real = np.flatnonzero(mask)
        if not len(real):
            assert found[row] == 0.0 and not best[row].any()
            continue
        paths, all_scores = every_path(np.asarray(scores)[row, real], transitions)
        own = score(np.asarray(tags)[row, real], np.asarray(scores)[row, real],
                    transitions)  # fmt: skip
        expected = own - special.logsumexp(all_scores)
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)
        assert tuple(best[row, real]) == paths[int(np.argmax(all_scores))]


def test_marginals_are_shares_of_all_paths(given):
    scores, _, transitions = given
    found = np.asarray(jax.jit(marginals)(scores, MASKS, transitions))
    for row, mask in enumerate(MASKS):
        real = np.flatnonzero(mask)
        expected = np.zeros((WORDS, TAGS))
        if len(real):
            paths, found_scores = every_path(np.asarray(scores)[row, real], transitions)
            shares = special.softmax(found_scores)
            for path, share in zip(paths, shares, strict=True):
                expected[real, list(path)] += share
        np.testing.assert_allclose(found[row], expected, atol=1e-6)


def test_gradient_is_counts_minus_expected_counts(given):
    scores, tags, transitions = given
    mask = jnp.ones((1, WORDS), int)

    def one(scores, transitions):
        return log_likelihood(scores, tags[:1], mask, transitions)[0]

    own, by_transition = jax.jit(jax.grad(one, (0, 1)))(scores[:1], transitions)
    paths, all_scores = every_path(np.asarray(scores)[0], transitions)
    shares = special.softmax(all_scores)
    gold = tuple(np.asarray(tags)[0])
    emitted, between = np.zeros((WORDS, TAGS)), np.zeros((TAGS, TAGS))
    for path, weight in [*zip(paths, -shares, strict=True), (gold, 1.0)]:
        emitted[np.arange(WORDS), path] += weight
        for a, b in itertools.pairwise(path):
            between[a, b] += weight
    assert_close(own[0], emitted)
    assert_close(by_transition.between, between)
    assert_close(by_transition.first, emitted[0])
    assert_close(by_transition.last, emitted[-1])


@pytest.mark.slow
def test_viterbi_guesses_nothing_that_is_not_allowed(given):
    transitions = given[-1]
    between = np.ones((TAGS, TAGS), bool)
    between[:, 1] = between[0] = False
    first, last = np.array([1, 1, 0], bool), np.array([0, 0, 1], bool)
    allowed = Transitions(*map(jnp.asarray, (between | np.eye(TAGS, dtype=bool), first,
                                         last)))  # fmt: skip
    within = transitions.penalize_forbidden(allowed)
    own = 9 * jax.random.normal(jax.random.key(0), (50, WORDS, TAGS))
    for path in np.asarray(viterbi(own, jnp.ones((50, WORDS), int), within)):
        assert first[path[0]] and last[path[-1]]
        assert all(allowed.between[a, b] for a, b in itertools.pairwise(path))


def test_crf_first_values_are_allennlps():
    params = jax.jit(Crf(200).init)(jax.random.key(0))["params"]
    spread = {name: float(value.value.std()) for name, value in params.items()}
    assert spread["between"] == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert spread["first"] == pytest.approx(1, rel=0.2)
    assert spread["last"] == pytest.approx(1, rel=0.2)
