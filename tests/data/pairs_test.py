"""Sentence pairs: the rules of create_pretraining_data.py, drawn on lengths."""

import itertools
import random
from array import array
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data import pairs

DOCUMENTS = st.lists(
    st.lists(st.integers(1, 60), min_size=1, max_size=15), min_size=2, max_size=5
)
SHAPES = st.builds(
    pairs.Settings,
    max_seq_length=st.integers(5, 64),
    short_seq_prob=st.sampled_from([0.0, 0.1, 1.0]),
    nsp=st.just(True),
)


def slow_truncate(a, b, longest, rng):
    """One token after the other, as published, with A's tosses first, then B's."""
    length_a, length_b = len(a), len(b)
    while length_a + length_b > longest:
        if length_a > length_b:
            length_a -= 1
        else:
            length_b -= 1
    for tokens, keep in ((a, length_a), (b, length_b)):
        tosses = len(tokens) - keep
        if tosses:
            bits = rng.getrandbits(tosses)
            for toss in range(tosses):
                if bits >> toss & 1:
                    del tokens[0]
                else:
                    del tokens[-1]
    return a, b


def slow_pairs(documents, rng, shape):
    """The published algorithm on lists of sentences of tokens."""
    room = shape.max_seq_length - 3
    result = []
    for here, document in enumerate(documents):
        target = room
        if rng.random() < shape.short_seq_prob:
            target = rng.randint(2, room)
        chunk, length, position = [], 0, 0
        while position < len(document):
            chunk.append(document[position])
            length += len(document[position])
            if position == len(document) - 1 or length >= target:
                split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = [token for sentence in chunk[:split] for token in sentence]
                if len(chunk) == 1 or rng.random() < 0.5:
                    is_random = True
                    # One draw in place of ten tries to meet another document.
                    others = [i for i in range(len(documents)) if i != here]
                    other = documents[others[rng.randrange(len(others))]]
                    wanted, b = target - len(a), []
                    for sentence in other[rng.randrange(len(other)) :]:
                        b += sentence
                        if len(b) >= wanted:
                            break
                    position -= len(chunk) - split
                else:
                    is_random = False
                    b = [token for sentence in chunk[split:] for token in sentence]
                result.append((*slow_truncate(a, b, room, rng), is_random))
                chunk, length = [], 0
            position += 1
    return result


def tokens_of(documents):
    """Sentences of tokens (document, place), with the given lengths."""
    result = []
    for number, lengths in enumerate(documents):
        places = iter(range(sum(lengths)))
        result.append([[(number, next(places)) for _ in range(n)] for n in lengths])
    return result


def spell(span):
    return [(span.document, place) for place in range(span.start, span.stop)]


@given(DOCUMENTS, SHAPES, st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_pairs_are_those_of_the_published_algorithm(documents, shape, seed):
    drawn = pairs.draw_pairs(documents, random.Random(seed), shape)
    fast = [(spell(p.a), spell(p.b), p.is_random_next) for p in drawn]
    slow = slow_pairs(tokens_of(documents), random.Random(seed), shape)
    assert fast == slow


@pytest.mark.slow
def test_half_of_the_pairs_are_random_and_a_tenth_of_the_targets_short():
    rng = random.Random(1)
    documents = [[rng.randint(3, 12) for _ in range(60)] for _ in range(2000)]
    shape = pairs.Settings(max_seq_length=64, short_seq_prob=0.1, nsp=True)
    drawn = list(pairs.draw_pairs(documents, rng, shape))
    # A put-back chunk at a document's end may hold a single sentence, so slightly
    # more than half. The sample is 20,000 pairs and more: five deviations are 0.018.
    share = sum(p.is_random_next for p in drawn) / len(drawn)
    assert 0.49 < share < 0.56
    longest = [0] * len(documents)
    for p in drawn:
        if not p.is_random_next:
            size = p.a.stop - p.a.start + p.b.stop - p.b.start
            longest[p.a.document] = max(longest[p.a.document], size)
    # A short target is below the room of 61 for all of a document. Targets near it
    # still fill the row, hence the lower bound. 0.1 of 2000: deviation 0.0067.
    short = sum(0 < size < 50 for size in longest) / len(documents)
    assert 0.04 < short < 0.11


@given(DOCUMENTS, st.integers(5, 64), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_full_sentences_lose_nothing(documents, length, seed):
    shape = pairs.Settings(length, 0.1, nsp=False)
    drawn = list(pairs.draw_pairs(documents, random.Random(seed), shape))
    everything = [token for d in tokens_of(documents) for s in d for token in s]
    assert [token for p in drawn for token in spell(p.a)] == everything
    assert all(p.a.stop - p.a.start <= length - 2 for p in drawn)
    assert all(not spell(p.b) and not p.is_random_next for p in drawn)


def test_full_sentences_fill_their_rows():
    shape = pairs.Settings(32, 0.0, nsp=False)
    sizes = [
        p.a.stop - p.a.start
        for p in pairs.draw_pairs([[7] * 20], random.Random(0), shape)
    ]
    assert sizes == [30, 30, 30, 30, 20]


def test_random_next_of_a_single_document_is_its_own():
    shape = pairs.Settings(32, 0.1, nsp=True)
    drawn = list(pairs.draw_pairs([[5] * 50], random.Random(0), shape))
    assert any(pair.is_random_next for pair in drawn)
    assert all(pair.b.document == 0 for pair in drawn)


def test_random_next_is_of_another_whole():
    """Parts of one book never follow each other at random, unless it is alone."""
    shape = pairs.Settings(32, 0.1, nsp=True)
    wholes = [0, 0, 0, 1, 2, 2]
    rng = random.Random(0)
    counts: Counter[tuple[int, int]] = Counter()
    for pair in pairs.draw_pairs([[5] * 500] * 6, rng, shape, wholes):
        if pair.is_random_next:
            counts[pair.a.document, pair.b.document] += 1
    assert {(a, b) for a, b in counts if wholes[a] == wholes[b]} == set()
    assert {b for a, b in counts if a == 1} == {3, 4, 5}
    assert {b for a, b in counts if a == 3} == {0, 1, 2, 4, 5}
    drawn = pairs.draw_pairs([[5] * 50] * 3, rng, shape, [7, 7, 7])
    assert all(p.is_random_next == (p.a.document != p.b.document) for p in drawn)


SEPARATOR = 9


def full_rows(documents, longest):
    """The rows' tokens. A document is a list of sentences, and a sentence of ids."""
    tokens = [array("i", itertools.chain(*document)) for document in documents]
    lengths = [[len(sentence) for sentence in document] for document in documents]
    wholes = list(range(len(documents)))
    ids, found = pairs.full_sentences(tokens, lengths, wholes, longest, SEPARATOR)
    return [list(ids[pair.a.start : pair.a.stop]) for pair in found]


@pytest.mark.parametrize(
    ("documents", "longest", "rows"),
    [
        # A row goes on in the next document.
        ([[[1, 1], [2, 2]], [[3, 3, 3]]], 8, [[1, 1, 2, 2, SEPARATOR, 3, 3, 3]]),
        # Sentences stay whole.
        (
            [[[1, 1], [2, 2], [3, 3]], [[4, 4]]],
            5,
            [[1, 1, 2, 2], [3, 3, SEPARATOR, 4, 4]],
        ),
        # A row does not end with a separator, which then needs no room.
        ([[[1, 1], [2, 2]], [[3, 3, 3, 3]]], 5, [[1, 1, 2, 2], [3, 3, 3, 3]]),
        (
            [[[1, 1], [2, 2]], [[3, 3]], [[4] * 8], [[5]]],
            4,
            [[1, 1, 2, 2], [3, 3], [4] * 4, [4] * 4, [5]],
        ),
        # A sentence that is too long is cut, and nothing is lost.
        ([[[1] * 7, [2, 2]], [[3]]], 4, [[1] * 4, [1, 1, 1], [2, 2, SEPARATOR, 3]]),
    ],
)
def test_full_sentences(documents, longest, rows):
    assert full_rows(documents, longest) == rows


def test_pieces_of_one_document_have_no_separator_between():
    tokens = [array("i", [1, 1]), array("i", [2]), array("i", [3])]
    lengths, wholes = [[2], [1], [1]], [0, 0, 1]
    ids, _ = pairs.full_sentences(tokens, lengths, wholes, 9, SEPARATOR)
    assert list(ids) == [1, 1, 2, SEPARATOR, 3]
