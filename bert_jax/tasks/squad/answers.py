"""The n best answers from the start and end logits of a question's windows.

Like run_squad.py's write_predictions, except for the text: Google's code joins the
span's words and searches for the tokens in them, which fails if the normalized text has
another length. It then answers with whole words (get_final_text). Here the text is the
substring of the context from the first token's first character to the last token's last
character.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bert_jax.tasks.squad.windows import Window


class Guess(NamedTuple):
    """One of the n best answers, or for "no answer", "" and None."""

    text: str  # as in the context
    start: int | None  # its first character in the context
    end: int | None  # the character after its last
    start_logit: float  # logit of its first token as a start
    end_logit: float  # logit of its last token as an end
    probability: float  # among the n best


class Prediction(NamedTuple):
    """A model's answers to a question."""

    guesses: tuple[Guess, ...]  # best first, at least one
    null_score: float  # start + end logit of "no answer", the least of any window

    @property
    def best(self) -> Guess:
        """Best guess that has a text, if any."""
        return next((guess for guess in self.guesses if guess.text), self.guesses[0])

    @property
    def null_odds(self) -> float:
        """Score of "no answer" minus the best answer's, as in null_odds.json."""
        return self.null_score - self.best.start_logit - self.best.end_logit

    def apply_threshold(self, threshold: float) -> Guess:
        """Returns the best answer, or "no answer" if `null_odds` > `threshold`."""
        if self.null_odds <= threshold:
            return self.best
        return next(guess for guess in self.guesses if not guess.text)


def best_answers(
    context: str,
    windows: Sequence[Window],
    logits: Sequence[tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]],
    *,
    n_best_size: int,
    max_answer_length: int,
    null_answers: bool,
) -> Prediction:
    """Returns the n best answers with different texts.

    Breaks ties as Google's code does: the earlier window first, in it the better start,
    then the better end, and for equal logits, the earlier position.

    Args:
      logits: Start and end logits of each window, without padding.
      n_best_size: Starts and ends considered in each window, and answers kept.
      max_answer_length: Maximum length in tokens.
      null_answers: Whether "no answer" is one of the n best.
    """
    # Sums in double precision, like Google's Python floats.
    pairs = [(s.astype(np.float64), e.astype(np.float64)) for s, e in logits]
    nulls = [
        (float(starts[window.null]), float(ends[window.null]))
        for window, (starts, ends) in zip(windows, pairs, strict=True)
    ]
    null = min(nulls, key=sum)
    spans = [
        _spans(window, starts, ends, n_best_size, max_answer_length)
        for window, (starts, ends) in zip(windows, pairs, strict=True)
    ]
    first, last, start_logits, end_logits = (
        np.concatenate(parts) for parts in zip(*spans, strict=True)
    )
    scores = start_logits + end_logits
    if null_answers:
        scores = np.append(scores, sum(null))
    kept: dict[str, Guess] = {}
    for index in np.argsort(-scores, kind="stable"):
        if len(kept) == n_best_size:
            break
        if index == len(first):
            kept[""] = _nothing(*null)
            continue
        start, end = int(first[index]), int(last[index])
        # Uncased tokens leave out combining accents at a word's end.
        while unicodedata.category(context[end : end + 1] or "a") == "Mn":
            end += 1
        edge_logits = float(start_logits[index]), float(end_logits[index])
        text = context[start:end]
        kept.setdefault(text, Guess(text, start, end, *edge_logits, 0.0))
    if null_answers:  # even if it makes n + 1
        kept.setdefault("", _nothing(*null))
    if not kept:  # no legal span: Google's code answers "empty"
        kept[""] = _nothing(0.0, 0.0)
    best = np.array([guess.start_logit + guess.end_logit for guess in kept.values()])
    shares = np.exp(best - best.max())
    shares /= shares.sum()
    guesses = tuple(
        guess._replace(probability=float(share))
        for guess, share in zip(kept.values(), shares, strict=True)
    )
    return Prediction(guesses, sum(null))


def _spans(
    window: Window,
    starts: Float[np.ndarray, "length"],
    ends: Float[np.ndarray, "length"],
    n_best_size: int,
    max_answer_length: int,
) -> tuple[np.ndarray, ...]:
    """Returns a window's legal spans, sorted by start logit, then by end logit: their
    characters of the context, from and to, and their start and end logits."""
    first, (begin, length), offsets = window.first, window.span, window.offsets
    start, end = _rank_logits(starts, n_best_size), _rank_logits(ends, n_best_size)
    start = start[(start >= first) & (start < first + length)]
    start = start[window.owned[start - first]]
    end = end[(end >= first) & (end < first + length)]
    tokens = end[None, :] - start[:, None] + 1
    rows, columns = np.nonzero((tokens >= 1) & (tokens <= max_answer_length))
    start, end = start[rows], end[columns]
    return (
        offsets[start - first + begin, 0],
        offsets[end - first + begin, 1],
        starts[start],
        ends[end],
    )


def _nothing(start_logit: float, end_logit: float) -> Guess:
    return Guess("", None, None, start_logit, end_logit, 0.0)


def _rank_logits(
    logits: Float[np.ndarray, "length"], size: int
) -> Int[np.ndarray, "best"]:
    return np.argsort(-logits, kind="stable")[:size]
