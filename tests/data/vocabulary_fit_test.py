"""Words that fall to letters are counted, and said where there are many."""

import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.data.vocabulary_fit import LEAST_WORDS, Fit, Watch, measured

PIECES = ["the", "a", "##a", "##b", "b", "##cd", "가", "##나", "中", "ᄀ", "##ᅡ", "."]


@pytest.fixture
def tokenizer():
    pieces = [*tokenization.SPECIAL_TOKENS, *PIECES]
    return tokenization.build(pieces, lowercase=True, strip_accents=False)


def independent(tokenizer, texts):
    """Words, words apart and pieces, from the library's own words of each text."""
    counts = np.zeros(3, int)
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        for word in sorted(set(encoding.word_ids)):
            mine = [
                piece.removeprefix("##")
                for piece, owner in zip(encoding.tokens, encoding.word_ids, strict=True)
                if owner == word
            ]
            if mine == ["[UNK]"]:
                counts += (1, 1, 1)
            elif any(x.isalpha() for x in "".join(mine)):
                letters = all(len(x) == 1 and not "가" <= x <= "힣" for x in mine)
                counts += (1, len(mine) > 1 and letters, len(mine))
    return tuple(counts)


TEXTS = ["the ab bcd . a", "가나 中 中 the.", "bab unknown", "", "가 ᄀ\u1161b b . ."]


def test_words_are_counted(tokenizer):
    encodings = tokenizer.encode_batch(TEXTS)
    fit = measured(np.concatenate([e.ids for e in encodings]), tokenizer)
    assert fit[:3] == independent(tokenizer, TEXTS)
    assert fit.apart == 4  # ab, unknown, bab and the jamo; not the syllables
    assert fit.unknown == 1
    assert fit.ids == sum(len(encoding.ids) for encoding in encodings)


def test_many_are_said_with_figures():
    said = Fit(words=200, apart=142, pieces=840).fault("train.tsv")
    assert said == (
        "train.tsv: 71% of the words are cut into single letters or [UNK] (4.2 pieces "
        "a word): this vocabulary does not fit the text; see docs/data.md"
    )
    assert not Fit(words=200, apart=50, pieces=400).fault("train.tsv")
    assert not Fit(words=LEAST_WORDS - 1, apart=90, pieces=400).fault("train.tsv")
    assert not Fit().fault("train.tsv")


def test_a_watch_warns_once(tokenizer):
    watch = Watch(tokenizer)
    row = np.array([tokenizer.encode("ab " * 40).ids, tokenizer.encode("a " * 80).ids])
    assert [bool(watch.fault(row[:, :-1], "-")) for _ in range(4)] == [
        *(True, False, False, False)
    ]


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
