"""SQuAD's scores against the two official scripts' rules, written out anew here."""

import re
import string
from collections import Counter, OrderedDict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_jax.tasks.squad import scores as squad


def plain(text):
    """normalize_answer of both scripts."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact(prediction, gold):
    return plain(prediction) == plain(gold)


def overlap_1(prediction, gold):
    """f1_score of evaluate-v1.1.py."""
    ours, theirs = plain(prediction).split(), plain(gold).split()
    same = sum((Counter(ours) & Counter(theirs)).values())
    if same == 0:
        return 0
    precision = 1.0 * same / len(ours)
    recall = 1.0 * same / len(theirs)
    return (2 * precision * recall) / (precision + recall)


def overlap_2(prediction, gold):
    """compute_f1 of evaluate-v2.0.py."""
    ours = plain(prediction).split() if prediction else []
    theirs = plain(gold).split() if gold else []
    if not ours or not theirs:
        return int(ours == theirs)
    return overlap_1(prediction, gold)


def script_1(questions, predictions):
    """evaluate of evaluate-v1.1.py."""
    matches = shared = total = 0
    for name, golds in questions:
        total += 1
        if name not in predictions:
            continue
        matches += max([exact(predictions[name], gold) for gold in golds])
        shared += max([overlap_1(predictions[name], gold) for gold in golds])
    return {"exact_match": 100.0 * matches / total, "f1": 100.0 * shared / total}


def raw_2(questions, predictions):
    matches, shared = {}, {}
    for name, golds in questions:
        golds = [gold for gold in golds if plain(gold)] or [""]
        prediction = predictions[name]
        matches[name] = max(int(exact(prediction, gold)) for gold in golds)
        shared[name] = max(overlap_2(prediction, gold) for gold in golds)
    return matches, shared


def script_2(questions, predictions):
    """main of evaluate-v2.0.py without --na-prob-file."""
    answered = {name: bool(golds) for name, golds in questions}
    matches, shared = raw_2(questions, predictions)
    results = OrderedDict(
        exact_match=100.0 * sum(matches.values()) / len(matches),
        f1=100.0 * sum(shared.values()) / len(shared),
    )
    for prefix, kind in (("HasAns", True), ("NoAns", False)):
        names = [name for name, has in answered.items() if has == kind]
        if names:
            total = sum(matches[name] for name in names)
            results[f"{prefix}_exact"] = 100.0 * total / len(names)
            total = sum(shared[name] for name in names)
            results[f"{prefix}_f1"] = 100.0 * total / len(names)
    return results


def find_best(predictions, scores, odds, answered):
    """find_best_thresh of evaluate-v2.0.py."""
    current = best = sum(1 for name in answered if not answered[name])
    threshold = 0.0
    for name in sorted(odds, key=lambda name: odds[name]):
        if name not in scores:
            continue
        wrong = -1 if predictions[name] else 0
        current += scores[name] if answered[name] else wrong
        if current > best:
            best, threshold = current, odds[name]
    return 100.0 * best / len(scores), threshold


WORDS = [
    *("the", "a", "an", "The", "cat", "Cat.", "cats", "caf\u00e9", "cafe\u0301"),
    *("\u00c9", "!", "--", "\u2014", "\u201cquoted\u201d", "a.m.", "U.S.", "100"),
    *("1,000", "\u00a0", "an-", "the\u2019s", "\u4e2d\u6587", "\u0130", "\u1e9e"),
    *("ANA", "\u2028", "\u200b", "\ud55c\uad6d", "\ufb01", "$5", "th_e", "a\tb"),
    "\u0345",
]
ANSWERS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join),
    st.text(max_size=8),
    st.text(alphabet="aAnNtThHeE .,-\u00e9", max_size=12),
)
ODDS = st.one_of(
    st.floats(-50, 50), st.integers(-2, 2).map(float), st.sampled_from([0.0, -0.0])
)
QUESTIONS = st.lists(
    st.tuples(st.lists(ANSWERS, max_size=4), ANSWERS, ODDS), min_size=1, max_size=12
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(ANSWERS, ANSWERS)
@example("", "")
@example("the", "a")
@example("The", "")
@example("\u0130", "i\u0307")
def test_scores_of_one_answer(prediction, gold):
    assert squad.normalize_answer(gold) == plain(gold)
    assert squad.exact_match(prediction, gold) == exact(prediction, gold)
    assert squad.word_f1(prediction, gold) == overlap_1(prediction, gold)
    assert squad.f1_or_none(prediction, gold) == overlap_2(prediction, gold)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(QUESTIONS, st.booleans())
def test_scores_are_those_of_both_scripts(questions, repeated):
    names = [str(number // (2 if repeated else 1)) for number in range(len(questions))]
    golds = [(n, q[0]) for n, q in zip(names, questions, strict=True)]
    predictions = {n: q[1] for n, q in zip(names, questions, strict=True)}
    assert squad.score_version2(predictions, golds) == script_2(golds, predictions)
    some = dict(list(predictions.items())[1:])
    golds = [(name, answers or [""]) for name, answers in golds]
    assert squad.score_version1(some, golds) == script_1(golds, some)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(QUESTIONS)
def test_threshold(questions):
    """The official score, and one of the thresholds with the best score."""
    golds = [(str(n), q[0]) for n, q in enumerate(questions)]
    texts = {str(n): q[1] for n, q in enumerate(questions)}
    odds = {str(n): q[2] for n, q in enumerate(questions)}
    answered = {name: bool(answers) for name, answers in golds}
    for score, raw in zip(
        (squad.exact_match, squad.f1_or_none), raw_2(golds, texts), strict=True
    ):
        best, threshold = squad.best_threshold(texts, golds, odds, score)
        official, cut = find_best(texts, raw, odds, answered)
        assert best == official

        def reached(limit, raw=raw):
            return sum(
                (raw[n] if answered[n] else not texts[n])
                if odds[n] <= limit
                else not answered[n]
                for n in texts
            )

        assert reached(threshold) == pytest.approx(
            max(map(reached, [min(odds.values()) - 1, *odds.values()]))
        )
        something = official > 100.0 * sum(not a for a in answered.values()) / len(raw)
        if len(set(odds.values())) == len(odds) and something:
            assert threshold == cut


def test_best_threshold_of_no_answer_is_below_all_odds():
    golds = [("a", []), ("b", [])]
    texts = {"a": "x", "b": "y"}
    score, threshold = squad.best_threshold(texts, golds, {"a": -3.0, "b": 2.0})
    assert score == 100.0
    assert threshold < -3.0


def test_scores_by_hand():
    golds = [("q", ["Denver Broncos", "the Denver Broncos of 2015"])]
    assert squad.score_version1({"q": "Broncos of 2015"}, golds) == {
        "exact_match": 0.0,
        "f1": pytest.approx(100 * 2 * 1.0 * 0.75 / 1.75),
    }
    assert squad.score_version2({"q": ""}, [("q", ["the"])])["f1"] == 100.0
    assert squad.score_version1({"q": ""}, [("q", ["the"])]) == {
        "exact_match": 100.0,
        "f1": 0.0,
    }
