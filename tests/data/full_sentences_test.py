"""Rows of whole sentences that go on in the next document."""

import itertools
from array import array

from bert_jax.data import pairs

MARK = 9


def rows(documents, longest):
    """The rows' tokens; a document is a list of sentences, a sentence of ids."""
    tokens = [array("i", itertools.chain(*document)) for document in documents]
    lengths = [[len(sentence) for sentence in document] for document in documents]
    wholes = list(range(len(documents)))
    ids, found = pairs.full_sentences(tokens, lengths, wholes, longest, MARK)
    return [list(ids[pair.a.start : pair.a.stop]) for pair in found]


def test_a_row_goes_on_in_the_next_document():
    documents = [[[1, 1], [2, 2]], [[3, 3, 3]]]
    assert rows(documents, 8) == [[1, 1, 2, 2, MARK, 3, 3, 3]]


def test_sentences_stay_whole():
    documents = [[[1, 1], [2, 2], [3, 3]], [[4, 4]]]
    assert rows(documents, 5) == [[1, 1, 2, 2], [3, 3, MARK, 4, 4]]


def test_a_row_does_not_end_with_a_separator():
    documents = [[[1, 1], [2, 2]], [[3, 3, 3, 3]]]
    assert rows(documents, 5) == [[1, 1, 2, 2], [3, 3, 3, 3]]


def test_a_separator_that_is_left_out_needs_no_room():
    documents = [[[1, 1], [2, 2]], [[3, 3]], [[4] * 8], [[5]]]
    assert rows(documents, 4) == [[1, 1, 2, 2], [3, 3], [4] * 4, [4] * 4, [5]]


def test_a_sentence_that_is_too_long_is_cut_and_nothing_is_lost():
    documents = [[[1] * 7, [2, 2]], [[3]]]
    found = rows(documents, 4)
    assert found == [[1] * 4, [1, 1, 1], [2, 2, MARK, 3]]
    assert [*itertools.chain(*found)].count(1) == 7


def test_pieces_of_one_document_have_no_separator_between():
    tokens = [array("i", [1, 1]), array("i", [2]), array("i", [3])]
    lengths, wholes = [[2], [1], [1]], [0, 0, 1]
    ids, _ = pairs.full_sentences(tokens, lengths, wholes, 9, MARK)
    assert list(ids) == [1, 1, 2, MARK, 3]
