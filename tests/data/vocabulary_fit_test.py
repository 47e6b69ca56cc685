"""The share of [UNK] in texts, and the warning where it is large."""

import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.data.vocabulary_fit import MANY_UNKNOWN, Watch, unknown_share


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


def test_many_unknown_tokens_are_said_once():
    pieces = [*tokenization.SPECIAL_TOKENS, "a", "b"]
    tokenizer = tokenization.build(pieces, lowercase=True, strip_accents=False)
    watch = Watch(tokenizer)
    ids = np.array([tokenizer.encode("a b z").ids + [0] * 95] * 10)  # padded to 100
    batch = {"input_ids": ids, "input_mask": (np.arange(100) < 5) * np.ones_like(ids)}
    said = [watch.fault(batch, "rows.csv") for _ in range(6)]
    assert said[:3] == [""] * 3  # too few tokens until the fourth
    assert said[4:] == [""] * 2
    assert said[3].startswith("rows.csv: 20.00% [UNK] in the first rows; that is a lot")
    batch["input_ids"] = np.where(ids == 1, 5, ids)
    watch = Watch(tokenizer)
    assert not any(watch.fault(batch, "rows.csv") for _ in range(6))
