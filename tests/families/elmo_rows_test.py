"""Words of texts, their characters, and batches of them."""

import numpy as np

from bert_jax.config import configuration
from bert_jax.data.rows import Feature
from bert_jax.families.elmo import characters
from bert_jax.families.elmo import rows as word_rows

ELMO = "configs/finetune/text.py:model=elmo,recipe=tiny"


def words(*fields, length=50):
    config = configuration.load_config(ELMO, fields)
    return word_rows.Words(word_rows.rule(config), length)


def test_offsets_are_places_in_the_text_as_it_was_given():
    text = "Don't \u2013 «Ünïcode» stop,  中文 \u0007now."
    found = words().encode(text)
    expected = "Don ' t \u2013 « Ünïcode » stop , 中 文 now ."
    assert " ".join(found.tokens) == expected
    for token, (start, end) in zip(found.tokens, found.offsets, strict=True):
        assert text[start:end].strip("\u0007") == token
    assert found.word_ids == list(range(13)) and len(set(found.ids)) == 13
    at_spaces = words("--config.task.words=spaces").encode("Don't stop,  now.")
    assert at_spaces.tokens == ["Don't", "stop,", "now."]
    low = words("--config.tokenizer.lowercase=True").encode("ÉTÉ Don")
    assert low.tokens == ["ete", "don"] and low.offsets == [(0, 3), (4, 7)]


def test_words_have_a_number_and_their_characters():
    one = words(length=6)
    texts = ["the bank the", "x" * 10_000 + " bank", "", "<S> </S>"]
    found = [one.encode(text).ids for text in texts]
    assert found[0][0] == found[0][2] and found[0][1] == found[1][1]
    assert found[2] == [] and one.cut == 1
    # The marks' letters in a text are words: no text begins there.
    assert not {0, 1, 2} & {number for ids in found for number in ids}
    table = one.characters(np.array([[0, 1, 2], [found[0][0], found[1][0], 0]]))
    expected = characters.of_words(["<S>", "</S>", "the", "x" * 10_000], 6)
    np.testing.assert_array_equal(table[0, 1:], expected[:2])
    np.testing.assert_array_equal(table[1, :2], expected[2:])
    assert not table[0, 0].any() and not table[1, 2].any()
    many = [f"w{n}" for n in range(5000)]
    numbers = np.array(one.ids(many))
    np.testing.assert_array_equal(one.characters(numbers), characters.of_words(many, 6))


def test_batches_have_the_characters_also_when_the_words_are_forgotten():
    one = words(length=7)
    ids = [np.array([1, *one.encode(text).ids, 2]) for text in ("a bank", "the")]
    features = [
        Feature(i, {"input_ids": own, "segment_ids": np.zeros_like(own)})
        for i, own in enumerate(ids)
    ]
    rows = word_rows.WordRows(features, {"input_ids": 0}, one)
    one.forget()
    one.ids(["others", "here"])
    batch = rows.batch(np.array([1, 0, 2]), 5)
    expected = characters.of_sentences([["the"], ["a", "bank"], []], 7)
    expected[2] = 0
    np.testing.assert_array_equal(batch["characters"][:, :4], expected)
    assert batch["characters"].shape == (3, 5, 7)
    assert not batch["characters"][:, 4].any()
