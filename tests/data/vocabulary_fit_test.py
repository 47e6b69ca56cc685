"""Words that fall to letters are counted, and said where there are many."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from bert_jax import tokenization
from bert_jax.data.rows import Feature, Rows
from bert_jax.data.vocabulary_fit import LEAST_WORDS, Fit, Watch, measured, of_rows

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


def test_rows_are_sampled_evenly(tokenizer):
    rows = [
        tokenizer.encode(text).ids for text in ("the the", "ab") for _ in "x" * 1500
    ]
    columns = [{"input_ids": np.array(ids)} for ids in rows]
    fit = of_rows(Rows([Feature(i, c) for i, c in enumerate(columns)], {}), tokenizer)
    assert fit[:3] == (1500, 500, 2000)


def test_another_model_has_no_such_pieces():
    vocabulary = {token: i for i, token in enumerate(tokenization.SPECIAL_TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    assert measured(np.array([1, 1, 2]), tokenizer) == Fit(ids=3, unknown=2)


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


def test_a_watch_adds_up_and_keeps_no_rows(tokenizer):
    ids = np.array([tokenizer.encode("ab a").ids])
    watch, whole = Watch(tokenizer), measured(np.tile(ids, (40, 1)).ravel(), tokenizer)
    for _ in range(40):
        assert watch.fault(ids, "-") == ""
    assert watch._fit == whole and whole.words == 80


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
