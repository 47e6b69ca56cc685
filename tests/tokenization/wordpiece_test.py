"""The tokenizer against the rules of google-research/bert, written out anew here."""

import gzip
import os
import random
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from bert_jax import tokenization
from tests.micro import error_line

SMALL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c", "##a", "."]
UNCASED = "vocab/bert-base-uncased-vocab.txt"
MULTILINGUAL = "vocab/bert-base-multilingual-cased-vocab.txt"
CHINESE = "vocab/bert-base-chinese-vocab.txt"
TEXTS = ("corpus", "glue", "squad", "imdb", "ner", "swag", "codah")
# This many lines of real text are compared, or all of them with
# BERT_JAX_TEST_ALL_LINES=1, which takes minutes.
SAMPLE = 3_000


class Rules:
    """Slow, and as close to the published rules as can be."""

    def __init__(self, vocabulary: list[str], lowercase: bool):
        self.vocabulary = set(vocabulary)
        self.lowercase = lowercase
        self.pieces = cache(self.pieces)

    def tokenize(self, text: str) -> list[str]:
        words = "".join(map(spaced, text)).split()
        if self.lowercase:
            words = [strip_accents(word.lower()) for word in words]
        split = "".join(
            f" {c} " if is_punctuation(c) else c for word in words for c in [*word, " "]
        )
        return [piece for word in split.split() for piece in self.pieces(word)]

    def pieces(self, word: str) -> list[str]:
        """The longest token that fits, again and again. All or [UNK]."""
        if len(word) > 200:
            return ["[UNK]"]
        found, rest, prefix = [], word, ""
        while rest:
            fitting = (n for n in range(len(rest), 0, -1))
            size = next((n for n in fitting if prefix + rest[:n] in self.vocabulary), 0)
            if not size:
                return ["[UNK]"]
            found.append(prefix + rest[:size])
            rest, prefix = rest[size:], "##"
        return found


@cache
def spaced(character: str) -> str:
    """A character cleaned, and set apart where it is Chinese."""
    point, category = ord(character), unicodedata.category(character)
    if character in " \t\n\r" or category == "Zs":
        return " "
    if point in (0, 0xFFFD) or category in ("Cc", "Cf"):
        return ""
    blocks = (
        *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
        *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
    )
    if any(first <= point <= last for first, last in blocks):
        return f" {character} "
    return character


@cache
def is_punctuation(character: str) -> bool:
    ascii_sign = 33 <= ord(character) <= 126 and not character.isalnum()
    return ascii_sign or unicodedata.category(character).startswith("P")


@cache
def strip_accents(word: str) -> str:
    decomposed = unicodedata.normalize("NFD", word)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def lines(folder: Path):
    """Every line of text below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            opened = gzip.open if path.suffix == ".gz" else open
            with opened(path, "rt", encoding="utf-8", errors="replace") as file:
                yield from file.read().split("\n")


def compare(vocabulary: Path, lowercase: bool, texts: list[str]) -> list[str]:
    """The texts on which the two differ."""
    tokenizer = tokenization.load(vocabulary, lowercase)
    tokenizer.encode_special_tokens = True
    pieces = vocabulary.read_bytes().decode("utf-8").split("\n")[:-1]
    rules = Rules(pieces, lowercase)
    different = []
    for first in range(0, len(texts), 10_000):
        some = texts[first : first + 10_000]
        encodings = tokenizer.encode_batch(some, add_special_tokens=False)
        for text, encoding in zip(some, encodings, strict=True):
            if encoding.tokens != rules.tokenize(text):
                different.append(text)
    return different


def known_difference(text: str, lowercase: bool) -> bool:
    """Whether the text holds something on which `tokenizers` is known to differ.

    It drops private and unassigned characters, which Google's code keeps (and makes
    [UNK]), and lowers a capital sigma at a word's end to the sigma of its middle.
    """
    dropped = any(unicodedata.category(c) in ("Co", "Cn") for c in text)
    return dropped or (lowercase and "\u03a3" in text)


@pytest.fixture(scope="module")
def real_lines(shared_data):
    """Returns the lines of some folders, which are read once."""

    @cache
    def find(folders):
        texts = [line for name in folders for line in lines(shared_data(name))]
        if "BERT_JAX_TEST_ALL_LINES" not in os.environ:
            texts = random.Random(0).sample(texts, SAMPLE)
        return texts

    return find


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vocabulary", "lowercase", "folders"),
    [(UNCASED, True, TEXTS), (MULTILINGUAL, False, ("korean",))],
)
def test_wordpiece_is_the_published_rules(
    shared_data, real_lines, vocabulary, lowercase, folders
):
    texts = real_lines(folders)
    different = compare(shared_data(vocabulary), lowercase, texts)
    assert [t for t in different if not known_difference(t, lowercase)] == []
    assert len(different) < len(texts) / 10_000 + 2


ODD = [
    "na\u00efve \u00c5ngstr\u00f6m \u0130stanbul stra\u00dfe",
    "zero\u200bwidth soft\u00adhyphen nul\0 \ufffd \x85 \u2028line\u00a0space",
    "\u4f60\u597d\u4e16\u754c \u30ab\u30bf\u30ab\u30ca \ud55c\uad6d\uc5b4",
    "it's [MASK] and [SEP], $5.00 (100%) --- a_b ^`~",
    "x" * 200 + " " + "x" * 201,
    "e\u0301 \u0915\u094d\u0937 \u05e9\u05c1 \u0e40\u0e01",
    "",
    " \t\r\n ",
]


@pytest.mark.parametrize("lowercase", [True, False])
def test_odd_unicode_characters_as_published(write, lowercase):
    letters = {c for text in ODD for c in text + strip_accents(text.lower())}
    pieces = sorted(c for c in letters if spaced(c).strip())
    vocabulary = [*tokenization.SPECIAL_TOKENS, *pieces, *("##" + c for c in pieces)]
    assert compare(write(vocabulary), lowercase, ODD) == []


def test_odd_unicode_characters_with_released_vocabularies(shared_data):
    for name, lowercase in ((UNCASED, True), (MULTILINGUAL, False)):
        assert compare(shared_data(name), lowercase, ODD) == []


def test_known_sentence(shared_data):
    tokenizer = tokenization.load(shared_data(UNCASED))
    encoding = tokenizer.encode("Here is the sentence I want embeddings for.")
    spelled = " ".join(map("{}({})".format, encoding.tokens, encoding.ids))
    assert spelled == (
        "[CLS](101) here(2182) is(2003) the(1996) sentence(6251) i(1045) want(2215) "
        "em(7861) ##bed(8270) ##ding(4667) ##s(2015) for(2005) .(1012) [SEP](102)"
    )
    assert tokenization.special_ids(tokenizer)[:5] == (0, 100, 101, 102, 103)


def test_vocabulary_may_have_a_line_separator(shared_data):
    tokenizer = tokenization.load(shared_data(CHINESE))
    assert tokenizer.get_vocab_size() == 21_128
    assert tokenizer.token_to_id("\u2028") is not None


@pytest.fixture
def write(tmp_path):
    def write_vocabulary(pieces, end="\n", first=""):
        path = tmp_path / "vocab.txt"
        path.write_bytes((first + "".join(p + end for p in pieces)).encode())
        return path

    return write_vocabulary


def test_pair_gets_its_special_tokens(write):
    encoding = tokenization.load(write(SMALL)).encode("A ab", "c. [MASK]")
    expected = ["[CLS]", "a", "a", "##b", "[SEP]", "c", ".", "[MASK]", "[SEP]"]
    assert encoding.tokens == expected
    assert encoding.type_ids == [0] * 5 + [1] * 4


def test_special_tokens_in_a_text_can_be_text(write):
    tokenizer = tokenization.load(write([*SMALL, "[", "]", "mask"]))
    assert tokenizer.encode("[MASK]", add_special_tokens=False).ids == [4]
    tokenizer.encode_special_tokens = True
    tokens = tokenizer.encode("[MASK]", add_special_tokens=False).tokens
    assert tokens == ["[", "mask", "]"]


def test_case_and_line_ends(write):
    path = write(["A", "\u00e9", *SMALL], end="\r\n")
    cased = tokenization.load(path, lowercase=False)
    assert cased.encode("A a \u00e9", add_special_tokens=False).ids == [0, 7, 1]
    uncased = tokenization.load(path)
    assert uncased.encode("A a", add_special_tokens=False).ids == [7, 7]


def test_saved_and_loaded(write, tmp_path):
    tokenizer = tokenization.load(write(SMALL), lowercase=False)
    tokenizer.enable_truncation(2)
    tokenization.save_tokenizer(tokenizer, tmp_path)
    assert (tmp_path / "vocab.txt").read_text().split("\n") == [*SMALL, ""]
    for name in ("vocab.txt", "tokenizer.json"):
        again = tokenization.load(tmp_path / name, lowercase=False)
        expected = ["[CLS]", "a", "##b", "[UNK]", "c", ".", "[SEP]"]
        assert again.encode("ab aB c.").tokens == expected
        assert again.decode([5, 6, 7]) == "ab c"


def test_byte_order_mark_is_no_part_of_a_piece(write):
    path = write(SMALL, first="\ufeff")
    assert tokenization.load(path).token_to_id(SMALL[0]) == 0


LINES = [*tokenization.SPECIAL_TOKENS, "a", "b", "##b", "c", "[unused0]"]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["", "[CLS]", *LINES, "a", "", "", "##b", "d", "", "", ""]),
        "\n".join([*LINES, "b  ", "##b\t", "c \t ", "  d"]),
        "\n".join([*LINES, "b\u00a0", "##b\u3000\r", "c\x0b\x85", "d\x1c"]),
    ],
    ids=["blank_lines", "white_space", "no_break_space"],
)
def test_vocabulary_line_is_an_id_and_the_last_of_equal_lines_counts(tmp_path, text):
    path = tmp_path / "vocab.txt"
    path.write_bytes(text.encode())
    ours = tokenization.load(path)
    theirs = pytest.importorskip("transformers").BertTokenizer.from_pretrained(tmp_path)
    pieces, every = theirs.get_vocab(), ours.get_vocab()
    spare = dict(every.items() - pieces.items())
    assert every == pieces | spare
    assert sorted(every.values()) == list(range(1 + max(pieces.values())))
    assert all(piece.startswith("[unused") for piece in spare)
    sentence = "[unused1] a abb [unused0] c d x"
    assert ours.encode(sentence).ids == theirs(sentence)["input_ids"]
    tokenization.save_tokenizer(ours, tmp_path)
    for name in ("vocab.txt", "tokenizer.json"):
        assert tokenization.load(tmp_path / name).get_vocab() == ours.get_vocab()


def test_ids_without_a_piece_in_a_tokenizer_json_stay_free(tmp_path):
    """As `transformers` saves a vocab.txt with doubled lines."""
    ids = {piece: i + (i > 5) for i, piece in enumerate(LINES)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = tokenization.load(tmp_path / "tokenizer.json")
    assert found.token_to_id("c") == tokenizer.token_to_id("c") == 9
    assert found.id_to_token(6) == "[unused1]"
    assert found.get_vocab_size() == 11


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("vocab.txt", "", "vocab.txt: the vocabulary is empty"),
        ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n", "the vocabulary has no [MASK]"),
        ("vocab.txt", None, "cannot read the vocabulary"),
        ("tokenizer.json", '{"model": 5}', "not a tokenizer.json"),
    ],
)
def test_vocabulary_that_is_bad(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content)
    line = error_line(tokenization.load, tmp_path / name)
    assert name in line and said in line
