"""Words and their sequences as hashes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.cleaning import grams

TEXTS = st.text(st.sampled_from("ab cd.é 中文か"), max_size=40)


def sequences(text, size):
    return grams.grams(grams.words(text), size).tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_hashes_are_equal_where_the_words_are(words, size):
    rows = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    found = sequences(" ".join(words), size)
    assert len(found) == len(rows)
    assert len(set(zip(rows, found, strict=True))) == len(set(rows)) == len(set(found))


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS)
def test_words_of_two_texts_follow_each_other(one, other):
    both = grams.words(f"{one}\n\n{other}").tolist()
    assert both == grams.words(one).tolist() + grams.words(other).tolist()


def test_case_and_marks_do_not_matter():
    assert sequences("The cat, sat!", 2) == sequences("the CAT\nsat", 2)
    assert sequences("the cat sat", 3) != sequences("the sat cat", 3)


def test_each_character_of_unspaced_writing_is_a_word():
    assert len(grams.words("中文 and かな")) == 5
    assert len(grams.words("한국어 문장")) == 2  # Korean has spaces


def test_the_hashes_of_words_stay_the_same_when_memory_is_freed(monkeypatch):
    before = grams.words("one two three one").tolist()
    monkeypatch.setattr(grams, "_KEPT", 2)
    monkeypatch.setattr(grams, "_hashes", grams._Hashes())
    assert grams.words("one two three one").tolist() == before
    assert len(grams._hashes) <= 2


def test_mixed_is_one_to_one():
    numbers = np.arange(100_000, dtype=np.uint64)
    found = grams.mixed(numbers)
    assert len(np.unique(found)) == len(numbers)
    ones = np.unpackbits(found.view(np.uint8)).mean()  # each bit is as often 0 as 1
    assert abs(ones - 0.5) < 0.001


def test_words_of_other_scripts():
    boy, girl = (grams.words(text) for text in ("लड़का गया", "लड़की गयी"))
    assert len(boy) == len(girl) == 2 and not (boy == girl).any()
    assert len(grams.words("हिन्दी भाषा में")) == 3
    for one, other in (
        ("cafe\u0301s", "caf\xe9s"),
        ("_Hamlet_ \xe9", "Hamlet, \xe9"),
        ("_Hamlet_", "hamlet"),
    ):
        np.testing.assert_array_equal(grams.words(one), grams.words(other))
    assert len(grams.words("\U00020000\U00020001")) == 2
