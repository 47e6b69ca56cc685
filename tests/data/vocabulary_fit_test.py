"""The share of [UNK] in texts, and the warning where it is large."""

import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.data.vocabulary_fit import MANY_UNKNOWN, unknown_share


@pytest.mark.parametrize(
    ("texts", "column", "vocabulary", "fits"),
    [
        ("glue/CoLA/train.tsv", 3, "uncased", True),
        ("korean/nsmc_ratings_train_small.txt", 1, "cased", False),
        ("korean/nsmc_ratings_train_small.txt", 1, "multilingual-cased", True),
    ],
)
def test_released_vocabularies(shared_data, texts, column, vocabulary, fits):
    path = shared_data(f"vocab/bert-base-{vocabulary}-vocab.txt")
    tokenizer = tokenization.load(path, lowercase=vocabulary == "uncased")
    lines = shared_data(texts).read_text("utf-8").split("\n")[1:500]
    encoded = tokenizer.encode_batch([line.split("\t")[column] for line in lines])
    ids = np.concatenate([each.ids for each in encoded])
    tokens = [token for each in encoded for token in each.tokens]
    assert unknown_share(ids, tokenizer) == tokens.count("[UNK]") / len(tokens)
    assert (unknown_share(ids, tokenizer) <= MANY_UNKNOWN) == fits
