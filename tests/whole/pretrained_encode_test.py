"""`encode`: the model's inputs, and each token's position in the text."""

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import tokenization
from bert_jax.data import rows
from bert_jax.tokenization.byte_level import ANGLED, BRACKETED
from tests.close import assert_close
from tests.micro import error_line

PIECES = [*tokenization.SPECIAL_TOKENS, "the", "caf", "##e", "cats"]
PIECES += ["un", "##seen", "."]
TEXTS = ["The café.", "unseen  cats", "東京 the [MASK]"]


@pytest.fixture
def tokenizer():
    return tokenization.build_tokenizer(PIECES, lowercase=True)


def columns(tokenizer, texts, texts_b=None):
    return rows.batch_columns(rows.encode_texts(tokenizer, texts, texts_b, 32), 0)


def test_offsets_are_in_the_text_as_it_was_given(tokenizer):
    found = columns(tokenizer, TEXTS)
    expected = [
        ["", "The", "caf", "é", ".", ""],
        ["", "un", "seen", "cats", ""],
        ["", "東", "京", "the", "[MASK]", ""],
    ]
    for row, (text, parts) in enumerate(zip(TEXTS, expected, strict=True)):
        places = found["offsets"][row][: len(found["tokens"][row])]
        assert [text[a:b] for a, b in places] == parts
    np.testing.assert_array_equal(found["word_ids"][1], [-1, 0, 0, 1, -1, -1])
    np.testing.assert_array_equal(found["offsets"][1][-2:], 0)
    np.testing.assert_array_equal(found["input_mask"][1], [1, 1, 1, 1, 1, 0])
    assert found["tokens"][1] == ["[CLS]", "un", "##seen", "cats", "[SEP]"]


def test_second_text_counts_from_its_own_start(tokenizer):
    found = columns(tokenizer, ["the cats"], ["unseen cats"])
    second = found["segment_ids"][0] == 1
    expected = [(0, 2), (2, 6), (7, 11), (0, 0)]
    np.testing.assert_array_equal(found["offsets"][0][second], expected)
    np.testing.assert_array_equal(found["word_ids"][0][second], [0, 0, 1, -1])
    np.testing.assert_array_equal(found["word_ids"][0][~second], [-1, 0, 1, -1])


@pytest.mark.slow
def test_they_are_what_the_model_was_given(plain):
    model = bert_jax.load(plain)
    found = model.encode(["the quick fox", "a"], ["seven cats", "it"])
    given = [found[name] for name in ("input_ids", "input_mask", "segment_ids")]
    outputs = model.apply(*given)
    last = outputs["hidden_states"][-1] * given[1][..., None]
    assert_close(found["hidden_states"], last)
    assert_close(found["pooled"], outputs["pooled"])
    for row, tokens in enumerate(found["tokens"]):
        ids = [model.tokenizer.token_to_id(token) for token in tokens]
        assert list(found["input_ids"][row][found["input_mask"][row] == 1]) == ids
    assert found["offsets"].shape == (*given[0].shape, 2)


@pytest.mark.parametrize("texts_b", [None, ["Cats, unseen", "é", "."]])
def test_encode_is_as_in_transformers(transformers, tokenizer, tmp_path, texts_b):
    tokenization.save_tokenizer(tokenizer, tmp_path)
    theirs = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    form = {"return_offsets_mapping": True, "return_tensors": "np"}
    expected = theirs(TEXTS, texts_b, padding=True, **form)
    found = columns(tokenizer, TEXTS, texts_b)
    for name, column in (
        ("input_ids", "input_ids"),
        ("attention_mask", "input_mask"),
        ("token_type_ids", "segment_ids"),
        ("offset_mapping", "offsets"),
    ):
        np.testing.assert_array_equal(found[column], expected[name])
    for row, words in enumerate(found["word_ids"]):
        own = [-1 if word is None else word for word in expected.word_ids(row)]
        np.testing.assert_array_equal(words, own)
        real = found["input_mask"][row] == 1
        tokens = [t for t, r in zip(expected.tokens(row), real, strict=True) if r]
        assert found["tokens"][row] == tokens


def test_model_that_computes_no_numbers_has_no_vectors(plain):
    """Each of its weights is finite."""
    model = bert_jax.load(plain)
    model.params = jax.tree.map(lambda x: x * 1e38, model.params)
    line = error_line(model.encode, ["the quick fox", "a"])
    assert "computes NaN or infinity" in line


@pytest.mark.parametrize("kind", [ANGLED, BRACKETED])
def test_mask_is_named_without_the_space_before_it(kind):
    trained = kind.train(["the cats"], 270, lowercase=False)
    mask = trained.id_to_token(tokenization.special_ids(trained).mask)
    found = columns(trained, [f"the {mask} cats  {mask}"])
    assert found["tokens"][0].count(mask) == 2
    ids = [trained.token_to_id(token) for token in found["tokens"][0]]
    assert ids == list(found["input_ids"][0])
