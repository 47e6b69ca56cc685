"""A text is split into the words that training data in this style would have."""

import itertools
import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.word_splitting import (
    CHARACTERS,
    SPACES,
    USUAL,
    WordSplitter,
    bert_words,
    learn_rule,
    words_of_tokens,
)
from bert_jax.tokenization.byte_level import ANGLED


def split(rule, text):
    """The words, by a rule that was saved in between."""
    spans = WordSplitter(json.loads(json.dumps(rule))).spans(text)
    return [text[start:end] for start, end in spans]


TREEBANK = """\
U.S. troops left , said Sue Smith .
" It 's a well-known man , " said H.L. Jean-Paul ( 45 ) .
The U.K. and Anne-Marie agree : it was 3.5 % .
John 's team ( state-of-the-art ) beat O'Neill 's .
Tom Brown met K.L. Weber in Bad Ems ; they talk .
She 's in Ulm , Bonn , Kiel and Jena - or so !
They left on Monday ... Lee was there .
"""
ENGLISH = learn_rule([line.split() for line in TREEBANK.splitlines()])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A. Otto left.", "A. Otto left ."),
        ('"R.A. Zink-Moe," he said.', '" R.A. Zink-Moe , " he said .'),
        ("(the U.N.'s day)", "( the U.N. 's day )"),
        ("O'Hara's 4.75-inch", "O'Hara 's 4.75-inch"),
        ("Anna\u2019s; no", "Anna \u2019s ; no"),
        ("So... \u201cyes\u201d!", "So ... \u201c yes \u201d !"),  # unknown quotes
        ("Berlin,Rome", "Berlin , Rome"),
        ("  a\u2028b\u00a0c\t\n", "a b c"),
    ],
)
def test_splitter_as_in_a_treebank(text, words):
    assert split(ENGLISH, text) == words.split()


def test_words_between_spaces_stay():
    """As in training data that somebody split at white space."""
    lines = ["In Rome, he (a man) said: no.", "Paris? Well, no."] * 2
    rule = learn_rule([line.split() for line in lines])
    assert split(rule, "(Ulm, Bonn) no!") == ["(Ulm,", "Bonn)", "no!"]


@pytest.mark.parametrize(
    ("training", "text", "words"),
    [
        ("d' un homme|l' eau de l' ami|qu' il a d' or", "l'art d'Ulm", "l' art d' Ulm"),
        ("Ankara'da var|Rize'nin|Bolu'ya .", "Mardin'de.", "Mardin'de ."),
        ("e - mail , well - known|a low - key man", "high-end", "high - end"),
        ("no !!! yes|ok !!!!", "so!!!!! ok", "so !!!!! ok"),
        ("@anna #tag|@bob is|@carl http://t.co/a1", "@dora!", "@dora!"),
    ],
)
def test_splitter_of_each_style(training, text, words):
    rule = learn_rule([line.split() for line in training.split("|")])
    assert split(rule, text) == words.split()


def test_scripts_without_spaces():
    words = ["我", "住在", "北京", "。"]
    rule = learn_rule([words, ["他", "在", "北京大学", "。", "他", "BERT"]])
    assert split(rule, "我在北京大学。他住在BERT") == [
        *("我", "在", "北京大学", "。", "他", "住在", "BERT")
    ]
    assert split(learn_rule([list("我住在北京。")]), "他在NBA 2") == [*"他在NBA2"]
    thai = learn_rule([["ผม", "อยู่", "ที่", "กรุงเทพ"]])
    assert split(thai, "ผมอยู่กรุงเทพ") == ["ผม", "อยู่", "กรุงเทพ"]
    assert split(CHARACTERS, "ที่นี่") == ["ที่", "นี่"]


TEXTS = {
    "combining": "cafe\u0301, Rene\u0301's (a\u0308)",
    "Devanagari": "क्षितिज ने कहा, \u201cनमस्ते\u201d।",
    "Arabic": "مُحَمَّد، السَّلَامُ عَلَيْكُم؟",
    "Hebrew": "שָׁלוֹם, צה\u05f4ל (יִשְׂרָאֵל).",
    "Thai": "ที่กรุงเทพฯ (ไทย) น้ำ",
    "Chinese": "我住在北京,他在NBA。",
    "Japanese": "東京タワーでジョン・スミスさんが「はい」。",
    "Korean": "서울(대한민국)에서, 김씨가.",
    "Cyrillic": "Анна-Мария п'ять й\u0306.",
    "Tamil": "தமிழ்நாடு, \U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea!",
}


@pytest.mark.parametrize("rule", [ENGLISH, USUAL, SPACES, CHARACTERS])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_offsets_in_every_script(text, rule):
    spans = WordSplitter(rule).spans(text)
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert end <= start
    for start, _ in spans:
        assert not unicodedata.category(text[start]).startswith("M")


words = st.text(
    st.sampled_from("abX.-'!,9我ท\u0301\u0e34 \U0001f600"), min_size=1, max_size=6
)


@given(st.lists(st.lists(words, min_size=1), max_size=8), words, st.booleans())
@settings(max_examples=100, deadline=None)
def test_splitter_splits_at_least_at_spaces(sentences, text, known):
    rule = learn_rule(sentences)
    assert learn_rule(sentences) == rule == json.loads(json.dumps(rule))
    text = " ".join(sentences[0]) if known and sentences else text
    found = split(rule, text)
    assert "".join(found) == "".join(text.split())
    assert all(found)


def test_berts_own_rule():
    text = "U.S.-based caf\u00e9 cafe\u0301 \u5317\u4eac\x00 \u30ab\u30bf"
    assert [text[start:end] for start, end in bert_words(text)] == [
        *("U", ".", "S", ".", "-", "based", "caf\u00e9", "cafe\u0301"),
        *("\u5317", "\u4eac", "\u30ab\u30bf"),
    ]


def test_words_of_byte_level_tokens():
    """The same words as in any other vocabulary."""
    text = "A cafe\u0301  B2B \u5317\u4eac \u0939\u093f, \U0001f600"
    tokenizer = ANGLED.train(["A cafe B2B"], 270, lowercase=False)
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    owners, found = words_of_tokens(offsets, bert_words(text))
    names = [text[start:end].strip() for start, end in found]
    assert [name for name in names if name] == [
        *("A", "cafe\u0301", "B2B", "\u5317", "\u4eac", "\u0939\u093f", ","),
        "\U0001f600",
    ]
    assert owners == sorted(owners) and len(owners) == len(offsets)


def test_words_of_tokens():
    """A token that two words share makes them one. White space is in none."""
    offsets = [(0, 2), (2, 3), (3, 4), (4, 4), (5, 7)]
    owners, found = words_of_tokens(offsets, [(0, 3), (3, 4), (5, 6), (6, 7)])
    assert owners == [0, 0, 1, 2, 3]
    assert found == [(0, 3), (3, 4), (4, 4), (5, 7)]
