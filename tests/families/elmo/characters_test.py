"""Words as characters' ids, against the published rules of bilm written once more."""

import random

import numpy as np
import pytest

from bert_jax.families.elmo import characters


def by_the_rules(word, length=50):
    """bilm's UnicodeCharsVocabulary and its Batcher: 0-255 are bytes, 256 and 257 begin
    and end a sentence, 258 and 259 a word, 260 pads. The batcher adds one to all."""
    ids = [258]
    if word == "<S>":
        ids.append(256)
    elif word == "</S>":
        ids.append(257)
    else:
        ids.extend(list(word.encode("utf-8", "ignore")[0 : length - 2]))
    ids.append(259)
    while len(ids) < length:
        ids.append(260)
    return [number + 1 for number in ids]


def awkward(count=1000):
    rng = random.Random(0)
    words = ["", " ", "<S>", "</S>", "<UNK>", "S>", "\0", "\ud800", "a\udfffb", "\xff"]
    words += ["x" * n for n in (47, 48, 49, 50, 10_000)]
    words += ["é" * 24, "é" * 25, "한" * 16, "한" * 17, "🤖" * 12, "🤖" * 13, "e\u0301"]
    ranges = ((0x20, 0x7F), (0xA0, 0x250), (0x370, 0x600), (0xAC00, 0xD7A4))
    ranges = (*ranges, (0xD800, 0xE000), (0x1F300, 0x1F700), (0x10FF00, 0x110000))
    while len(words) < count:
        size = rng.choice([1, 2, 5, 11, 12, 15, 16, 24, 30, 48, 60])
        chosen = rng.choices(ranges, k=size)
        words.append("".join(chr(rng.randrange(*pair)) for pair in chosen))
    return words


@pytest.mark.parametrize("length", [50, 12, 3])
def test_words_are_those_of_the_published_rules(length):
    words = awkward()
    found = characters.encode_words(words, length)
    expected = np.array([by_the_rules(word, length) for word in words])
    np.testing.assert_array_equal(found, expected)
    assert len(words) == 1000 and found.min() >= 1 and found.max() < 262


def test_long_words_are_counted():
    words = awkward()
    bytes_ = [len(word.encode("utf-8", "ignore")) for word in words]
    assert characters.count_cut_words(words) == sum(n > 48 for n in bytes_) > 100
    assert characters.count_cut_words(["x" * 48, "é" * 24]) == 0
    assert characters.count_cut_words(["x" * 10_000, "é" * 25]) == 2


def test_sentences_have_their_marks_and_are_padded():
    found = characters.encode_sentences([["The", "cat"], [], ["sat"]], 10)
    assert found.shape == (3, 4, 10)
    words = ["<S>", "The", "cat", "</S>"]
    assert found[0].tolist() == [by_the_rules(word, 10) for word in words]
    assert found[1, :2].tolist() == [by_the_rules(w, 10) for w in ("<S>", "</S>")]
    assert not found[1, 2:].any() and not found[2, 3:].any() and found[2, :3].all()
    assert characters.encode_sentences([]).shape == (0, 2, 50)
