"""Words that fall to letters are counted, and said where there are many."""

import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.data.vocabulary_fit import measured

PIECES = ["the", "a", "##a", "##b", "b", "##cd", "가", "##나", "中", "ᄀ", "##ᅡ", "."]


@pytest.fixture
def tokenizer():
    pieces = [*tokenization.SPECIAL_TOKENS, *PIECES]
    return tokenization.build(pieces, lowercase=True, strip_accents=False)


LINES = {
    "glue/CoLA/train.tsv": 3,
    "korean/nsmc_ratings_train_small.txt": 1,
}


@pytest.mark.parametrize(
    ("texts", "vocabulary", "fits"),
    [
        ("glue/CoLA/train.tsv", "uncased", True),
        ("glue/CoLA/train.tsv", "chinese", True),
        ("korean/nsmc_ratings_train_small.txt", "uncased", False),
        ("korean/nsmc_ratings_train_small.txt", "cased", False),
        ("korean/nsmc_ratings_train_small.txt", "multilingual-cased", True),
    ],
)
def test_released_vocabularies(shared_data, texts, vocabulary, fits):
    path = shared_data(f"vocab/bert-base-{vocabulary}-vocab.txt")
    tokenizer = tokenization.load(path, lowercase=vocabulary in ("uncased", "chinese"))
    lines = shared_data(texts).read_text("utf-8").split("\n")[1:500]
    given = [line.split("\t")[LINES[texts]] for line in lines]
    ids = np.concatenate([e.ids for e in tokenizer.encode_batch(given)])
    assert (measured(ids, tokenizer).fault("a") == "") == fits
