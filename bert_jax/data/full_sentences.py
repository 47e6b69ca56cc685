"""Rows of whole sentences from one or more documents (Liu et al. 2019, section 4.2).

A row takes sentences as long as they fit. Where a document ends, a separator follows
and the next document goes on in the same row.
"""

import itertools
from array import array
from collections.abc import Iterator, Sequence

from bert_jax.data.pairs import Pair, Settings, Span


def draw(
    tokens: Sequence[array],
    lengths: Sequence[list[int]],
    wholes: Sequence[int],
    settings: Settings,
    mark: int,
) -> tuple[list[array], Iterator[Pair]]:
    """A chunk's rows, in place of `pairs.draw`, and the tokens that they are parts of;
    see `joined` and `rows`."""
    ids, sizes = joined(tokens, lengths, wholes, mark)
    longest = settings.max_seq_length - 2  # of a row, its first and last token
    return [ids], rows(ids, sizes, longest, mark)


def joined(
    tokens: Sequence[array],
    lengths: Sequence[list[int]],
    wholes: Sequence[int],
    mark: int,
) -> tuple[array, list[int]]:
    """A chunk's documents as one: its tokens, and the tokens in each sentence.

    Args:
      tokens: of each piece of a document.
      lengths: of each piece's sentences.
      wholes: each piece's document.
      mark: the separator's id; it is part of a document's last sentence.
    """
    ids, sizes = array("i"), []
    for index, (piece_ids, parts) in enumerate(zip(tokens, lengths, strict=True)):
        ids += piece_ids
        sizes += parts
        if index + 1 < len(wholes) and wholes[index + 1] != wholes[index]:
            ids.append(mark)
            sizes[-1] += 1
    return ids, sizes


def rows(ids: array, sizes: Sequence[int], longest: int, mark: int) -> Iterator[Pair]:
    """The rows, in order; what is too long for a row is cut.

    A separator with which a row would end is left out, and needs no room: another ends
    the row itself.

    Args:
      ids: of the whole chunk.
      sizes: tokens in each sentence.
      longest: tokens that fit in a row.
    """
    ends = list(itertools.accumulate(sizes))
    kept = [end - (ids[end - 1] == mark) for end in ends]  # if a row ends there
    start = place = 0
    while start < len(ids):
        stop = last = start + longest  # of a sentence too long for a row
        while place < len(ends) and kept[place] - start <= longest:
            stop, last, place = ends[place], kept[place], place + 1
        if last > start:  # not so where a text is a separator's own name
            yield Pair(Span(0, start, last), Span(0, last, last), False)
        start = stop
