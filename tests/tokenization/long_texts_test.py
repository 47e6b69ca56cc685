"""A long text that is cut has the first and the last pieces of the whole."""

import functools
import random

import pytest
from tokenizers import Tokenizer, models

from bert_jax import tokenization
from bert_jax.tokenization import long_texts
from bert_jax.tokenization.byte_level import ANGLED
from bert_jax.tokenization.long_texts import LIMIT, LongTexts

LETTERS = [*"abcdefghijklmnopqrstuvwxyz", *"ÀéÑöß", *"жЩя", *"가한", "ﬁ", "Σ"]
ODD = {
    "words": [*LETTERS, *LETTERS, *" .,-'\n\t"],
    "marks": [*"abc ", "\u0301", "\u0323", "\u20d0", "\ufe0f", "e\u0301"],
    "Chinese": [
        *"的一是不了人我在有他这中大来上国",
        "\uff0c",
        "。",
        "\uff01",
        "\u3000",
        "a",
    ],
    "spaces": [*" \t\n\r", "\u00a0", "\u2003", "a"],
    "controls": ["\x00", "\x07", "\u200d", "\ufeff", "\ufffd", "a", " "],
    "punctuation": [*"!?.[]{}()<>=+$^`~@#", "—", "…", "«", "a", "\u0338"],
    "everything": [chr(n) for n in range(0x20, 0x3100)],
}
RUNS = {
    "a long word": "a" * 400_000,
    "two words": "a" * 200_000 + " b" + "c" * 200_000,
    "white space": " \n\t\r" * 100_000 + "the end",
    "controls": "ab" + "\x00\u200d" * 200_000 + "cd the end",
    "accents": "e" + "\u0301" * 300_000 + "t the end",
    "Chinese": "的一是不了" * 30_000,
    "Chinese in a word": "a" * 150_000 + "的" + "b" * 150_000 + "的 the",
    "marks": "!" * 150_000 + "\u0301" + "!" * 150_000,
    "nothing": "\x00" * 300_000,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS += [f"{mark}{chr(n)}" for n in range(0x21, 0x180) for mark in ("", "##")]
WORDS += [
    f"{mark}{c}" for c in "的一是不了人我在有他这中大来上国жящ" for mark in ("", "##")
]
WORDS += [
    "the",
    "end",
    "##the",
    "ab",
    "##cd",
    "abcd",
    "et",
    "\uff0c",
    "。",
    "\uff01",
    "—",
]


def tokenizer(lowercase, accents):
    return tokenization.build(list(dict.fromkeys(WORDS)), lowercase, accents)


def ids(own, text):
    own.encode_special_tokens = True
    return own.encode(text, add_special_tokens=False).ids


@functools.cache
def long_texts_of(own):
    return LongTexts(own, lambda text: len(ids(own, text)))


def check(own, text, enough):
    texts = long_texts_of(own)
    whole = ids(own, text)
    first = ids(own, texts.cut(text, enough))
    assert first[:enough] == whole[:enough]
    for mode in ("tail", "head_tail"):
        both = ids(own, texts.cut(text, enough, mode))
        assert both[:enough] == whole[:enough]
        assert both[-enough:] == whole[-enough:]
        # Who cuts pieces to a length sees that there are too many.
        assert (len(both) > enough) == (len(whole) > enough)
    assert (len(first) > enough) == (len(whole) > enough)


@pytest.fixture(
    scope="module", params=[(True, True), (False, False)], ids=["uncased", "cased"]
)
def own(request):
    return tokenizer(*request.param)


@pytest.mark.parametrize("kind", ODD)
def test_the_first_pieces_are_those_of_the_whole(own, kind, monkeypatch):
    check_cuts(own, kind, 300, monkeypatch)


@pytest.mark.parametrize("kind", [*ODD, "sentences"])
def test_pieces_with_spaces_are_those_of_the_whole(kind, monkeypatch):
    words = ["the", " end", "  and", "\n", "\n\n", " so", ",", " (", "it's", " \u00e9"]
    monkeypatch.setitem(ODD, "sentences", words)
    texts = [" ".join("".join(letters) for letters in ODD.values())] * 3
    texts += ["the end  and\n\nso it's (a)  word, " * 50] * 3
    check_cuts(ANGLED.train(texts, 500, lowercase=False), kind, 450, monkeypatch)


def test_a_long_word_of_long_pieces_has_enough_of_them():
    own = ANGLED.train(["=" * 64] * 2, 267, lowercase=False)
    assert own.token_to_id("=" * 64)
    text = "=" * 400_000 + "the end"
    assert len(ids(own, text[: long_texts.PART])) < 2000
    cut = ids(own, long_texts_of(own).cut(text, 2000))
    assert cut[:2000] == ids(own, text)[:2000]


def check_cuts(own, kind, limit, monkeypatch):
    monkeypatch.setattr(long_texts, "LIMIT", limit)
    monkeypatch.setattr(long_texts, "PART", limit * 2 // 3)
    rng = random.Random(kind)
    for _ in range(30):
        letters = ODD[kind]
        if rng.random() < 0.5:  # with runs
            letters = [c * rng.choice((1, 1, 1, 50)) for c in letters]
        text = "".join(
            rng.choice(letters) for _ in range(rng.randrange(limit, 7 * limit))
        )
        check(own, text, rng.choice((1, 10, 100)))


@pytest.mark.parametrize("kind", RUNS)
def test_long_runs(own, kind):
    if kind == "accents" and not tokenization.normalization(own)["strip_accents"]:
        pytest.skip("a word of 300,000 characters, [UNK]")
    check(own, RUNS[kind], 100)


def test_a_text_that_is_not_long_stays(own):
    texts = LongTexts(own, lambda _: pytest.fail("read"))
    for text in ("", "a b", "a " * (LIMIT // 2)):
        assert texts.cut(text, 1) is text


def test_little_is_read_of_much_and_said_once(own, caplog):
    seen = []

    def count(text):
        seen.append(len(text))
        return len(ids(own, text))

    texts = LongTexts(own, count)
    for _ in range(2):
        assert len(texts.cut("the end. " * 1_000_000, 128)) < 2 * LIMIT
        texts.cut("的" * 1_000_000, 128, "head_tail")
    assert max(seen) < 2 * LIMIT and sum(seen) < 10 * LIMIT
    (said,) = caplog.messages
    assert "a text of 9,000,000 characters is not read to its end" in said


def test_a_tokenizer_of_another_kind_is_cut_at_spaces():
    other = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    texts = LongTexts(other, lambda text: len(text.split()))
    assert len(texts.cut("one.two " * 100_000, 100)) < 2 * LIMIT
