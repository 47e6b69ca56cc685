"""SQuAD's contexts as tokens, in overlapping windows, and the tokens of an answer.

The rules are those of google-research/bert, run_squad.py,
convert_examples_to_features.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from tokenizers import Encoding

# Google's white space. Its code keeps other kinds inside words.
_SPACES = " \t\r\n\u202f"
# And scripts without it: Thai, Lao, Tibetan, Myanmar, Khmer, kana, Han.
_WORD_ENDS = re.compile(
    f"[{_SPACES}\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
Tokenize = Callable[[Sequence[str]], Iterable[Encoding]]
Ids = Int[np.ndarray, "tokens"]
# Each token's first character, and the one after its last.
Offsets = Int[np.ndarray, "tokens 2"]


class Span(NamedTuple):
    """A range of the context's tokens."""

    start: int  # the first one
    length: int  # number of tokens


class Window(NamedTuple):
    """A row [CLS] question [SEP] part of the context [SEP]."""

    span: Span  # the context's tokens in it
    first: int  # the row position of the first of them
    owned: Bool[np.ndarray, "length"]  # this window has the most context for the token
    offsets: Offsets  # all tokens' characters in the context
    null: int = 0  # the row position that means "no answer": that of [CLS]


def window_spans(tokens: int, room: int, stride: int) -> list[Span]:
    """Cuts a context into windows.

    An empty context has one empty window. In run_squad.py it has none, and no answer.

    Args:
      tokens: Number of tokens of the context.
      room: Context tokens that fit in a window, at least one.
      stride: Tokens from one window's first to the next one's, at least one.
    """
    windows = [Span(0, min(tokens, room))]
    while sum(windows[-1]) < tokens:
        start = windows[-1].start + min(windows[-1].length, stride)
        windows.append(Span(start, min(tokens - start, room)))
    return windows


def has_max_context(
    windows: Sequence[Span], tokens: int
) -> list[Bool[np.ndarray, "_"]]:
    """Returns, for each window's tokens, whether it has the most context for them.

    A token's context is the smaller of the token counts to its left and right. Ties go
    to the longer window, then to the first (_check_is_max_context).
    """
    best = np.full(tokens, -1.0)
    owner = np.full(tokens, -1)
    for number, (start, length) in enumerate(windows):
        here = np.arange(length)
        score = np.minimum(here, length - 1 - here) + 0.01 * length
        part = slice(start, start + length)
        better = score > best[part]
        best[part] = np.where(better, score, best[part])
        owner[part] = np.where(better, number, owner[part])
    return [
        owner[start : start + length] == number
        for number, (start, length) in enumerate(windows)
    ]


def answer_tokens(
    context: str,
    place: tuple[int, int],
    ids: Ids,
    offsets: Offsets,
    answer_ids: Sequence[int],
) -> tuple[int, int] | None:
    """Returns the first and the last token of an answer, or None if it has no token.

    These are the tokens at the answer's characters, if they begin and end with them or
    equal the answer's own ([UNK] for a part of a word that is [UNK]). Otherwise ("8" in
    "20-18") all tokens of the words that the answer touches, as in run_squad.py's
    _improve_answer_span. Unlike there, the tokens are never others than those at the
    answer, and a word also ends where a script without spaces begins.

    Args:
      place: The answer's first character and the one past its last.
      ids: Ids of the context.
      offsets: First character of each of the context's tokens, and the one past its
        last.
      answer_ids: Ids of the answer's text alone.
    """
    begin, end = place
    first, last = _covering(offsets, begin, end)
    if last < first:
        return None
    fits = begin <= offsets[first, 0] and offsets[last, 1] <= end
    if fits or ids[first : last + 1].tolist() == list(answer_ids):
        return first, last
    while begin and not _WORD_ENDS.match(context[begin - 1]):
        begin -= 1
    while end < len(context) and not _WORD_ENDS.match(context[end]):
        end += 1
    return _covering(offsets, begin, end)


def _covering(offsets: Offsets, begin: int, end: int) -> tuple[int, int]:
    """Returns the first and the last token with a character from `begin` to `end`.

    The last one comes before the first if there is none.
    """
    first = int(np.searchsorted(offsets[:, 1], begin, side="right"))
    return first, int(np.searchsorted(offsets[:, 0], end)) - 1


def answer_positions(window: Window, answer: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the row positions of an answer's first and last token.

    They are `null` where the window does not have the whole answer, or there is none.
    """
    if answer is None:
        return window.null, window.null
    start, end = (token - window.span.start for token in answer)
    if start < 0 or end >= window.span.length:
        return window.null, window.null
    return start + window.first, end + window.first


def tokenize_contexts(
    texts: Sequence[str], tokenize: Tokenize
) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_ 2"]]]:
    """Yields ids and offsets of each context. Tokenizes equal ones in a row once."""
    runs = [(text, len(list(run))) for text, run in itertools.groupby(texts)]
    encodings = tokenize([text for text, _ in runs])
    for encoding, (_, times) in zip(encodings, runs, strict=True):
        ids = np.array(encoding.ids, np.int32)
        offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        yield from itertools.repeat((ids, offsets), times)
