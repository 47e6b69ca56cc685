"""Tokenizes SQuAD's texts, each context once, and finds the answer span to train on."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from tokenizers import Encoding

from bert_jax.tasks.squad import data, windows
from bert_jax.tasks.squad.data import Example

# Texts tokenized at a time: the tokenizer's objects take a hundred times the memory of
# the ids.
_AT_A_TIME = 1000

Tokenize = Callable[[Sequence[str]], list[Encoding]]


class Tokens(NamedTuple):
    """The ids of a question's texts."""

    question: Int[np.ndarray, "_"]
    context: Int[np.ndarray, "tokens"]
    offsets: Int[np.ndarray, "tokens 2"]  # characters of the context
    answer: Int[np.ndarray, "_"]  # of the first answer's text


class Located(NamedTuple):
    """Where a training question's answer is."""

    tokens: tuple[int, int] | None = None  # first and last token in the context
    notices: tuple[str, ...] = ()  # what is unusual about it
    left_out: bool = False  # it cannot be trained on


def tokens(examples: Sequence[Example], tokenize: Tokenize) -> Iterator[Tokens]:
    """Tokenizes the examples' texts; consecutive equal contexts only once."""
    texts = [x.answers[0].text.strip() if x.answers else "" for x in examples]
    questions = _ids([example.question for example in examples], tokenize)
    for (context, offsets), question, answer in zip(
        _contexts([example.context for example in examples], tokenize),
        questions,
        _ids(texts, tokenize),
        strict=True,
    ):
        yield Tokens(question, context, offsets, answer)


def answer(
    example: Example,
    ids: Int[np.ndarray, "tokens"],
    offsets: Int[np.ndarray, "tokens 2"],
    gold: Int[np.ndarray, "_"],
    *,
    null_answers: bool,
) -> Located:
    """The tokens of a training question's first answer; None if it has no answer.

    Google's code stops if a question has several answers, or none in SQuAD 1.1; like
    this function, it leaves out answers that it cannot find.
    """
    if not example.answers or (example.impossible and null_answers):
        if null_answers:
            return Located()
        why = "questions without an answer (task.null_answers is off), left out"
        return Located(notices=(why,), left_out=True)
    notices: tuple[str, ...] = ()
    if len(example.answers) > 1:
        notices += ("questions of several answers, the first one used",)
    first = example.answers[0]
    place = data.find(example.context, first)
    if place is None:
        notices += ("answers that are not at answer_start, left out",)
        return Located(notices=notices, left_out=True)
    if not example.context.startswith(first.text, first.start):
        notices += ("answers some characters off answer_start, found",)
    span = windows.answer_tokens(example.context, place, ids, offsets, gold.tolist())
    if span is None:
        notices += ("answers without a token, left out",)
    return Located(span, notices, left_out=span is None)


def _ids(texts: Sequence[str], tokenize: Tokenize) -> Iterator[Int[np.ndarray, "_"]]:
    for begin in range(0, len(texts), _AT_A_TIME):
        for encoding in tokenize(texts[begin : begin + _AT_A_TIME]):
            yield np.array(encoding.ids, np.int32)


def _contexts(
    contexts: Sequence[str], tokenize: Tokenize
) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_ 2"]]]:
    """Ids and offsets of each context."""
    runs = [(text, len(list(run))) for text, run in itertools.groupby(contexts)]
    for begin in range(0, len(runs), _AT_A_TIME):
        some = runs[begin : begin + _AT_A_TIME]
        encodings = tokenize([text for text, _ in some])
        for encoding, (_, times) in zip(encodings, some, strict=True):
            ids = np.array(encoding.ids, np.int32)
            offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
            yield from itertools.repeat((ids, offsets), times)
