"""Words looked up once have the ids that the tokenizer gives whole sentences."""

import gzip
import itertools
import json
from array import array

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers

from bert_jax import tokenization
from bert_jax.data import words

VOCABULARY = [*tokenization.SPECIAL_TOKENS, "a", "b", "##a", "##b", ",", "mask", "="]
VOCABULARY += ["[", "]", "##\u0301", "\u0301", "\u00e1", "\u4e00", "A", "'", "ab", "0"]
# Letters that combine, decompose or are dropped, and every kind of space.
PARTS = ["a", "b", "A", "\u00c1", "\u0301", "\u0338", "\u20dd", "\u2260", "\u4e00"]
PARTS += [" ", "\t", "\n", "\xa0", "\u3000", "\x00", "\x1c", "\x0b", "\x85", "\u200b"]
PARTS += [",", "=", "'", "_", "\u2019", "\u3002", "[MASK]", "[CLS]", "0", "\u03a3"]
TEXT = st.one_of(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.text())


def as_whole(tokenizer, sentences):
    own = Tokenizer.from_str(tokenizer.to_str())
    own.encode_special_tokens = True
    return [x.ids for x in own.encode_batch(sentences, add_special_tokens=False)]


def by_words(found):
    return [array("i", ids).tolist() for ids in found]


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_any_text(lowercase):
    tokenizer = tokenization.build_tokenizer(VOCABULARY, lowercase)
    own = words.Words(tokenizer)

    @settings(max_examples=500, deadline=None)
    @given(st.lists(TEXT, max_size=4))
    @example(["a" * 300 + " a", "[MASK] a,b"])
    def check(sentences):
        assert by_words(own.encode(sentences)) == as_whole(tokenizer, sentences)

    check()
    assert by_words(own.encode(["a [MASK],b"]))[0][1:4] == [
        VOCABULARY.index(piece)
        for piece in ("[", "mask" if lowercase else "[UNK]", "]")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncased", "cased", "multilingual-cased"])
def test_words_of_real_text(shared_data, name):
    tokenizer = tokenization.load(
        shared_data(f"vocab/bert-base-{name}-vocab.txt"), name == "uncased"
    )
    own = words.Words(tokenizer)
    with gzip.open(shared_data("corpus/english/06-expository.jsonl.gz"), "rt") as file:
        texts = [json.loads(line)["text"] for line in itertools.islice(file, 40)]
    texts += shared_data("korean/korsts-dev.tsv").read_text().splitlines()[:200]
    lines = [line for text in texts for line in text.splitlines()]
    assert by_words(own.encode(lines)) == as_whole(tokenizer, lines)


@pytest.mark.parametrize("change", ["normalizer", "added"])
def test_tokenizer_that_looks_across_spaces(change):
    tokenizer = tokenization.build_tokenizer(VOCABULARY, True)
    if change == "normalizer":
        tokenizer.normalizer = normalizers.Replace("a b", "ab")
    else:
        tokenizer.add_tokens([AddedToken("b a", special=False)])
    sentences = ["a b", "b a b", "a"]
    found = by_words(words.Words(tokenizer).encode(sentences))
    assert found == as_whole(tokenizer, sentences)
    assert found[0] + found[1] != as_whole(tokenizer, ["a"])[0] * 2
