"""Rows of whole sentences from one or more documents (Liu et al. 2019, section 4.2).

A row takes sentences as long as they fit. Where a document ends, a separator follows
and the next document goes on in the same row.
"""

import itertools
from array import array
from collections.abc import Iterator, Sequence

from bert_jax.data.pairs import Pair, Span


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
    for index, (own, parts) in enumerate(zip(tokens, lengths, strict=True)):
        ids += own
        sizes += parts
        if index + 1 < len(wholes) and wholes[index + 1] != wholes[index]:
            ids.append(mark)
            sizes[-1] += 1
    return ids, sizes


def rows(ids: array, sizes: Sequence[int], longest: int, mark: int) -> Iterator[Pair]:
    """The rows, in order; what is too long for a row is cut.

    A separator with which a row would end is left out: another ends the row itself.

    Args:
      ids: of the whole chunk.
      sizes: tokens in each sentence.
      longest: tokens that fit in a row.
    """
    ends = list(itertools.accumulate(sizes))
    start = place = 0
    while start < len(ids):
        stop = start
        while place < len(ends) and ends[place] - start <= longest:
            stop, place = ends[place], place + 1
        stop = min(start + longest, len(ids)) if stop == start else stop
        kept = stop - 1 if ids[stop - 1] == mark and stop - start > 1 else stop
        if ids[start:kept] != array("i", [mark]):
            yield Pair(Span(0, start, kept), Span(0, kept, kept), False)
        start = stop
