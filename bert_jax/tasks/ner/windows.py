"""Cuts a sentence that is too long, and adds context from the document around it."""

from collections.abc import Iterator, Sequence


def parts(
    sizes: Sequence[int], begin: int, end: int, room: int
) -> Iterator[tuple[int, int]]:
    """Cuts the words [begin, end) into parts to be tagged.

    Args:
      sizes: pieces of each word, at most `room`.
      room: pieces of a window. Words that all fit are one part; otherwise each part
        has at most room / 2 pieces, or is one word.
    """
    if sum(sizes[begin:end]) <= room:
        yield begin, end
        return
    first, total = begin, 0
    for index in range(begin, end):
        if total + sizes[index] > room // 2 and index > first:
            yield first, index
            first, total = index, 0
        total += sizes[index]
    yield first, end


def widen(
    sizes: Sequence[int], part: tuple[int, int], around: tuple[int, int], room: int
) -> tuple[int, int]:
    """Adds words of `around` to a part, alternating right and left, while they fit."""
    left, right = part
    rest = room - sum(sizes[left:right])
    grows = True
    while grows:
        grows = False
        if right < around[1] and sizes[right] <= rest:
            rest -= sizes[right]
            right += 1
            grows = True
        if left > around[0] and sizes[left - 1] <= rest:
            left -= 1
            rest -= sizes[left]
            grows = True
    return left, right
