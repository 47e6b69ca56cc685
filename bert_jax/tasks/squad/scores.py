"""Exact match and F1 as SQuAD's evaluate-v1.1.py and evaluate-v2.0.py compute them."""

import functools
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

Golds = Sequence[tuple[str, Sequence[str]]]  # each question's id and gold answers


@functools.lru_cache(1 << 16)
def normalize_answer(text: str) -> str:
    """Lowercases, and drops ASCII punctuation, articles and extra white space."""
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, gold: str) -> float:
    """Returns 1 or 0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def word_f1(prediction: str, gold: str) -> float:
    """Returns F1 over words, 0 to 1, and 0 where either text has no word (1.1)."""
    words, gold_words = (
        normalize_answer(prediction).split(),
        normalize_answer(gold).split(),
    )
    shared = sum((Counter(words) & Counter(gold_words)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(words), shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def f1_or_none(prediction: str, gold: str) -> float:
    """Returns `word_f1`, but 1 where neither text has a word (2.0)."""
    if not normalize_answer(prediction) and not normalize_answer(gold):
        return 1.0
    return word_f1(prediction, gold)


def score_version1(predictions: Mapping[str, str], golds: Golds) -> dict[str, float]:
    """Returns `exact_match` and `word_f1` in percent, with 0 for a missing prediction.

    Args:
      golds: At least one question, each with at least one answer.
    """

    def mean(score: Callable[[str, str], float]) -> float:
        total = 0.0
        for name, answers in golds:
            if name in predictions:
                total += max(score(predictions[name], gold) for gold in answers)
        return 100.0 * total / len(golds)

    return {"exact_match": mean(exact_match), "f1": mean(word_f1)}


def score_version2(predictions: Mapping[str, str], golds: Golds) -> dict[str, float]:
    """Returns percentages: `exact_match` and `word_f1`, also as `HasAns_...` and
    `NoAns_...`, over the questions with and without an answer, where there are any.

    Args:
      predictions: Prediction for every question, "" for no answer.
      golds: At least one question. The last one counts where an id repeats.
    """
    answered = {name: bool(answers) for name, answers in golds}
    exact = _raw(predictions, golds, exact_match)
    shared = _raw(predictions, golds, f1_or_none)
    results = {"exact_match": _percent(exact), "f1": _percent(shared)}
    for prefix, kind in (("HasAns", True), ("NoAns", False)):
        names = [name for name in answered if answered[name] == kind]
        if names:
            results[f"{prefix}_exact"] = _percent({n: exact[n] for n in names})
            results[f"{prefix}_f1"] = _percent({n: shared[n] for n in names})
    return results


def best_threshold(
    texts: Mapping[str, str],
    golds: Golds,
    null_odds: Mapping[str, float],
    score: Callable[[str, str], float] = f1_or_none,
) -> tuple[float, float]:
    """Returns the best score over all thresholds, in percent, and the best threshold.

    A question is answered if its odds of having no answer are at most the threshold
    (find_best_thresh). There are two differences from that script. Where answering
    nothing is best, it returns 0, which suits probabilities but not log odds. Here the
    threshold is then below all odds. And it splits questions with equal odds, which no
    threshold can do: the score here does so too, but the threshold is the best possible
    one.

    Args:
      texts: Best non-empty answer to every question.
      golds: As in `score_version2`.
      null_odds: Odds for every question. Larger means an answer is less likely.
    """
    answered = {name: bool(answers) for name, answers in golds}
    raw = _raw(texts, golds, score)
    names = sorted(raw, key=lambda name: null_odds[name])
    odds = np.array([null_odds[name] for name in names])
    gains = [raw[n] if answered[n] else -float(bool(texts[n])) for n in names]
    nothing = float(sum(not answered[name] for name in names))
    totals = np.cumsum([nothing, *gains])
    # Indices after the last of equal odds. Index 0 answers nothing.
    possible = np.flatnonzero(np.append(True, np.append(odds[1:] != odds[:-1], True)))
    place = possible[np.argmax(totals[possible])]
    below = np.nextafter(odds[0], -np.inf)
    threshold = odds[place - 1] if place else below
    return 100.0 * float(totals.max()) / len(names), float(threshold)


def _raw(
    predictions: Mapping[str, str], golds: Golds, score: Callable[[str, str], float]
) -> dict[str, float]:
    """Returns each question's best score over its gold answers."""
    scores = {}
    for name, answers in golds:
        valid = [answer for answer in answers if normalize_answer(answer)] or [""]
        scores[name] = max(score(predictions[name], gold) for gold in valid)
    return scores


def _percent(scores: Mapping[str, float]) -> float:
    return 100.0 * sum(scores.values()) / len(scores)
