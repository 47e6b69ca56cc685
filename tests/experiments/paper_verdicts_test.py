"""Verdicts on claims: against scipy and samples made by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from bert_jax.commands import intervals
from experiments.lib import verdicts
from experiments.lib.verdicts import Claim, Pair


def measured(**systems):
    """Scores of systems by column, from lists by seed."""
    return {
        (system, column): dict(enumerate(values))
        for system, columns in systems.items()
        for column, values in columns.items()
    }


def judge(claim, scores, columns, seeds=None):
    """By default as many seeds were requested as the fullest system has."""
    seeds = seeds or max(map(len, scores.values()))
    return verdicts.judge(claim, scores, columns, seeds)


def claim(*columns, margin=0.0, first="a", second="b"):
    pairs = tuple(Pair(first, second, column) for column in columns)
    return Claim("a is better than b", "5.1", pairs, margin)


def test_paired_by_seed_not_by_order():
    """The spread that two systems share by seed does not count."""
    noise = [0.0, 9.0, -7.0, 4.0, 2.0]
    gains = [1.0, 1.2, 0.9, 1.1, 1.0]
    scores = {
        ("a", "x"): {s: 50 + n + g for s, (n, g) in enumerate(zip(noise, gains))},  # noqa: B905
        ("b", "x"): {s: 50 + noise[s] for s in reversed(range(5))},
    }
    verdict = judge(claim("x"), scores, ["x"])
    (part,) = verdict.parts
    assert verdict.word == "reproduced"
    np.testing.assert_allclose(part.differences, gains)
    test = stats.ttest_rel(*([scores[x, "x"][s] for s in range(5)] for x in "ab"))
    np.testing.assert_allclose((part.low, part.high), test.confidence_interval(0.95))
    # A seed that only one of them has does not count, and one that is missing may be
    # the one that failed.
    scores["a", "x"][5] = -1000.0
    less = verdicts.judge(claim("x"), scores, ["x"], 6)
    assert less.parts[0].differences == part.differences
    assert less.word == "undecided" and "only 5 of 6 seeds" in less.why


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ([2, 2.2, 1.9], [1, 1.1, 1.05], "reproduced"),
        ([1, 1.1, 1.05], [2, 2.2, 1.9], "contradicted"),
        ([1, 3, 2], [2, 1, 2.5], "undecided"),
    ],
)
def test_better(a, b, word):
    scores = measured(a={"x": a}, b={"x": b})
    verdict = judge(claim("x"), scores, ["x"])
    assert verdict.word == verdict.parts[0].word == word


def test_verdict_of_one_seed_is_undecided():
    scores = measured(a={"x": [99.0]}, b={"x": [1.0]})
    verdict = judge(claim("x"), scores, ["x"])
    assert verdict.word == "undecided" and "one seed" in verdict.why
    assert verdict.parts[0].mean == 98.0 and verdict.parts[0].low == -math.inf


@pytest.mark.parametrize(
    ("a", "why"),
    [
        # As two float32 of 0.8529412 become points.
        ([85.29411554, 85.29411765], "differ by the same"),
        ([math.inf, 2.0], "not a number"),
    ],
)
def test_verdict_without_spread_or_number_is_undecided(a, why):
    """Two runs that collapsed to the majority class have no spread at all."""
    scores = measured(a={"x": a}, b={"x": [1.0, 1.0]})
    verdict = judge(claim("x"), scores, ["x"])
    assert verdict.word == "undecided" and why in verdict.why


def test_verdict_needs_all_and_one_refutes():
    up, down, wide = [1.0, 1.1, 0.9], [-1.0, -1.1, -0.9], [3.0, -3.0, 0.5]
    zero = [0.0, 0.0, 0.0]

    def word(*columns):
        scores = measured(
            a={str(i): values for i, values in enumerate(columns)},
            b={str(i): zero for i in range(len(columns))},
        )
        keys = [str(i) for i in range(len(columns))]
        return judge(claim(*keys), scores, keys).word

    assert word(up, up) == "reproduced"
    assert word(up, wide) == "undecided"
    assert word(up, down, wide) == "contradicted"


def test_verdict_of_many_needs_a_wider_interval_to_refute():
    """Against the claim at 95%, but not once twenty comparisons are allowed for."""
    against = [-1.0, -1.9, -0.8, -0.4]
    low, high = intervals.interval(against)
    assert high < 0 < intervals.interval(against, 1 - 0.05 / 20)[1]
    one = judge(claim("x"), measured(a={"x": against}, b={"x": [0.0] * 4}), ["x"])
    assert one.word == "contradicted"
    assert (one.parts[0].low, one.parts[0].high) == (low, high)
    keys = ["x", *(f"y{i}" for i in range(19))]
    many = measured(
        a={"x": against, **{k: [1.0, 1.1, 0.9, 1.2] for k in keys[1:]}},
        b={k: [0.0] * 4 for k in keys},
    )
    verdict = judge(claim(*keys), many, keys)
    assert verdict.word == "undecided" and verdict.parts[0].word == "undecided"


@pytest.mark.parametrize(
    ("differences", "word"),
    [
        ([0.1, -0.1, 0.05], "reproduced"),
        ([3.0, 3.1, 2.9], "contradicted"),
        ([0.9, 1.4, 0.2], "undecided"),
    ],
)
def test_alike_within_a_margin(differences, word):
    """Not to find a difference is not enough: the interval must be inside."""
    scores = measured(a={"x": differences}, b={"x": [0.0, 0.0, 0.0]})
    assert judge(claim("x", margin=1.0), scores, ["x"]).word == word
