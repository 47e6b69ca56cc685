"""Sentence pairs, drawn as in google-research/bert's create_pretraining_data.py.

Without pairs: passages of single documents, or the rows of `full_sentences`. The rules
need only the lengths of sentences, so a pair is two ranges of token positions. All
randomness comes from the `rng` given.
"""

import random
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple


class Settings(NamedTuple):
    """Settings that determine the pairs. The fields are those of `config.corpus`."""

    max_seq_length: int  # tokens, [CLS] and [SEP] included
    short_seq_prob: float  # probability of a shorter target length
    nsp: bool  # whether rows are pairs, for next sentence prediction


class Span(NamedTuple):
    """Tokens start to stop (not included) of a document."""

    document: int  # index of the document
    start: int  # its first token
    stop: int  # the token after its last


class Pair(NamedTuple):
    """Two texts of a row."""

    a: Span  # the first
    b: Span  # the second, empty without next sentence prediction
    is_random_next: bool  # whether `b` is from another document


class _Corpus(NamedTuple):
    """Starts of sentences, and the documents that are segments of a long document."""

    # offsets[d][s]: where sentence s of document d starts. The last one is its end.
    offsets: list[list[int]]
    # Per document: the first segment of its long document, and the one after the last.
    whole: list[tuple[int, int]]


def draw_pairs(
    documents: Sequence[Sequence[int]],
    rng: random.Random,
    settings: Settings,
    wholes: Sequence[int] | None = None,
) -> Iterator[Pair]:
    """Yields the pairs of some documents, in the order of the documents.

    Args:
      documents: For each document the numbers of tokens in its sentences, all > 0.
        A random B comes from another document if possible.
      rng: Source of every draw.
      settings: See above.
      wholes: Where documents are segments of longer ones: for each segment the number
        of its long document, whose segments are consecutive. A random B comes from
        another long document if possible.
    """
    offsets = [[0, *accumulate(lengths)] for lengths in documents]
    whole: list[tuple[int, int]] = []
    for _, group in groupby(range(len(documents)) if wholes is None else wholes):
        count = sum(1 for _ in group)
        whole += [(len(whole), len(whole) + count)] * count
    corpus = _Corpus(offsets, whole)
    for document, ends in enumerate(offsets):
        if settings.nsp:
            yield from _pairs(corpus, document, rng, settings)
            continue
        # Without pairs a document is cut where a row is full, and keeps all tokens.
        longest = settings.max_seq_length - 2  # [CLS] A [SEP]
        target = _target(longest, rng, settings.short_seq_prob)
        for start in range(0, ends[-1], target):
            stop = min(start + target, ends[-1])
            yield Pair(Span(document, start, stop), Span(document, stop, stop), False)


def _target(longest: int, rng: random.Random, short_seq_prob: float) -> int:
    """Draws a document's target length, once: mostly `longest`, sometimes less."""
    if rng.random() < short_seq_prob:
        return rng.randint(2, longest)
    return longest


def _pairs(
    corpus: _Corpus, document: int, rng: random.Random, settings: Settings
) -> Iterator[Pair]:
    longest = settings.max_seq_length - 3  # [CLS] A [SEP] B [SEP]
    target = _target(longest, rng, settings.short_seq_prob)
    ends = corpus.offsets[document]
    count = len(ends) - 1
    first = 0  # sentence with which the chunk begins
    while first < count:
        stop = first + 1  # sentence after the chunk's last one
        while stop < count and ends[stop] - ends[first] < target:
            stop += 1
        middle = first + 1  # sentence after A's last one
        if stop - first >= 2:
            middle = first + rng.randint(1, stop - first - 1)
        a = Span(document, ends[first], ends[middle])
        is_random_next = stop - first == 1 or rng.random() < 0.5
        if is_random_next:
            b = _random_next(corpus, document, target - (a.stop - a.start), rng)
            first = middle  # the chunk's other sentences come again
        else:
            b = Span(document, ends[middle], ends[stop])
            first = stop
        yield Pair(*truncate_pair(a, b, longest, rng), is_random_next)


def _random_next(
    corpus: _Corpus, document: int, target: int, rng: random.Random
) -> Span:
    """Returns another document's sentences from a random one, until `target` tokens."""
    # Google's code tries ten times to draw another document. This always succeeds. With
    # a single document both take that one, here another of its segments if it has any.
    first, stop = corpus.whole[document]
    if stop - first == len(corpus.offsets) > 1:
        first, stop = document, document + 1
    other = 0
    if others := len(corpus.offsets) - (stop - first):
        other = rng.randrange(others)
        other += (stop - first) * (other >= first)
    ends = corpus.offsets[other]
    first = rng.randrange(len(ends) - 1)
    stop = first + 1
    while stop < len(ends) - 1 and ends[stop] - ends[first] < target:
        stop += 1
    return Span(other, ends[first], ends[stop])


def truncate_pair(
    a: Span, b: Span, longest: int, rng: random.Random
) -> tuple[Span, Span]:
    """Drops tokens until the two have `longest` tokens in total.

    Each drop takes a token of the longer one (B on a tie), from the front or the back
    with equal chance. So the count per span is fixed, and the number dropped from the
    front is a sum of coin tosses.
    """
    length_a, length_b = a.stop - a.start, b.stop - b.start
    keep_a, keep_b = length_a, length_b
    if length_a + length_b > longest:
        # The longer one shrinks to the other's length, then they alternate, B first.
        keep_a = min(length_a, max(longest - length_b, (longest + 1) // 2))
        keep_b = longest - keep_a
    return (
        _trim(a, length_a - keep_a, rng),
        _trim(b, length_b - keep_b, rng),
    )


def _trim(span: Span, drop: int, rng: random.Random) -> Span:
    if not drop:
        return span
    front = rng.getrandbits(drop).bit_count()
    return Span(span.document, span.start + front, span.stop - (drop - front))


def full_sentences(
    tokens: Sequence[array],
    lengths: Sequence[list[int]],
    wholes: Sequence[int],
    longest: int,
    separator: int,
) -> tuple[array, list[Pair]]:
    """Fills rows with whole sentences of one or more documents (Liu et al. 2019, 4.2).

    A row takes sentences as long as they fit. Where a document ends, a separator
    follows, and the next document continues in the same row. A separator with which a
    row would end is left out and needs no room: another ends the row itself.

    Args:
      tokens: Tokens of each document, or of each segment of a long one.
      lengths: Lengths of its sentences.
      wholes: See `draw_pairs`.
      longest: Tokens that fit in a row. A longer sentence is cut.
      separator: Id of the separator.

    Returns:
      All tokens, separators included, and the rows as parts of them, in order.
    """
    ids, ends = array("i"), list[int]()
    for index, (piece, sizes) in enumerate(zip(tokens, lengths, strict=True)):
        ends += [len(ids) + end for end in accumulate(sizes)]
        ids += piece
        if index + 1 < len(wholes) and wholes[index + 1] != wholes[index]:
            ids.append(separator)
            ends[-1] += 1
    kept = [end - (ids[end - 1] == separator) for end in ends]  # if a row ends there
    rows = []
    start = sentence = 0
    while start < len(ids):
        stop = last = start + longest  # a sentence too long for a row
        while sentence < len(ends) and kept[sentence] - start <= longest:
            stop, last, sentence = ends[sentence], kept[sentence], sentence + 1
        if last > start:  # false where a text is a separator's name
            rows.append(Pair(Span(0, start, last), Span(0, last, last), False))
        start = stop
    return ids, rows
