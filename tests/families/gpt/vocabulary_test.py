"""GPT's vocabulary: the tokens of `transformers` and of the published code."""

import gzip
import json
import shutil

import pytest

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.data.words import Words
from bert_jax.families.gpt import vocabulary as byte_pairs
from bert_jax.families.gpt.vocabulary import BYTE_PAIRS
from tests.micro import error_line

ODD = (
    *("", " ", "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m", "\u4e2d\u6587 text"),
    *("it's 3.14%!", "_start_ a _classify_ <unk> b", "x" * 300, "tab\tnew\nline"),
    *("\u200bzero\u00adsoft", "\u2014 dash \u2026 dots", "e\u0301 combining"),
    *("UPPER lower", "\U0001f600 face"),
)
WORDS = """the quick brown fox jumps over the lazy dog while seven cats watch it go
the dog was quick and the fox was lazy so the cats watched them both going home"""


def trained(size=300):
    return BYTE_PAIRS.train([WORDS] * 3, size, lowercase=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vocab.json and merges.txt as released: without the special tokens."""
    folder = tmp_path_factory.mktemp("vocabulary")
    trained().model.save(str(folder))
    return folder


@pytest.fixture(scope="module")
def real(shared_data, tmp_path_factory):
    """Paragraphs of real text, and a vocabulary trained on some of them."""
    path = shared_data("corpus/english/06-expository.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(next(lines))["text"] for _ in range(40)]
    paragraphs = [p for text in texts for p in text.split("\n") if p]
    folder = tmp_path_factory.mktemp("real")
    learnt = BYTE_PAIRS.train(paragraphs[::2], 2000, lowercase=True)
    learnt.model.save(str(folder))
    return folder, paragraphs


def theirs(folder):
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    return transformers.OpenAIGPTTokenizer(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt")
    )


def test_pieces_are_those_of_transformers(real):
    folder, paragraphs = real
    ours = tokenization.load(folder / "vocab.json")
    ours.encode_special_tokens = True
    other = theirs(folder)
    texts = [*paragraphs[:2000], *(text for text in ODD if "_start_" not in text)]
    found = ours.encode_batch(texts, add_special_tokens=False)
    expected = other(texts)["input_ids"]
    for text, encoding, ids in zip(texts, found, expected, strict=True):
        assert encoding.ids == ids, text
    assert sum(len(encoding.ids) for encoding in found) > 20_000


def test_words_are_looked_up(real):
    folder, paragraphs = real
    tokenizer = tokenization.load(folder / "vocab.json")
    tokenizer.encode_special_tokens = True
    words = Words(tokenizer)
    assert words._by_word
    texts = [*paragraphs[:300], *ODD]
    found = words.encode(texts)
    for text, ids in zip(texts, found, strict=True):
        wanted = tokenizer.encode(text, add_special_tokens=False).ids
        assert memoryview(ids).cast("i").tolist() == wanted, text


def test_special_tokens_come_last_and_stand_around_texts(folder):
    tokenizer = tokenization.load(folder / "vocab.json")
    assert tokenizer.get_vocab_size() == 300
    pieces = tokenization.tokens_by_id(tokenizer)
    assert pieces[0] == "<unk>" and tuple(pieces[-3:]) == byte_pairs.SPECIAL_TOKENS
    one = tokenizer.encode("the dog")
    assert one.tokens[0] == "_start_" and one.tokens[-1] == "_classify_"
    both = tokenizer.encode("the dog", "a cat")
    assert both.tokens.count("_delimiter_") == 1 and set(both.type_ids) == {0}
    special = tokenization.special_ids(tokenizer)
    assert special == (0, 0, 297, 298, 0, 299, (298,))
    tokenizer.encode_special_tokens = True
    spelled = tokenizer.encode("_start_ <unk>", add_special_tokens=False).ids
    assert not {297, 298, 299} & set(spelled) and len(spelled) > 3


def test_work_directory_gives_the_same_vocabulary_back(folder, tmp_path):
    tokenizer = tokenization.load(folder / "vocab.json")
    tokenization.save_tokenizer(tokenizer, tmp_path)
    again = tokenization.load_folder_tokenizer(tmp_path)
    assert again.to_str() == tokenizer.to_str()
    # As in a folder of `transformers`: a tokenizer.json without the special tokens.
    (tmp_path / "tokenizer.json").write_text(_without_special(tokenizer))
    assert (
        tokenization.load_folder_tokenizer(tmp_path).get_vocab()
        == tokenizer.get_vocab()
    )


def _without_special(tokenizer):
    form = json.loads(tokenizer.to_str())
    form["added_tokens"], form["post_processor"] = [], None
    return json.dumps(form)


def test_training_gives_the_size_asked_for_and_always_the_same():
    one, two = trained(), trained()
    assert one.to_str() == two.to_str() and one.get_vocab_size() == 300
    large = trained(2000)
    assert large.get_vocab_size() == 2000 and "[unused0]" in large.get_vocab()
    encoded = one.encode("The Dog", add_special_tokens=False).tokens
    assert encoded[0] == "the</w>"


def test_damaged_vocabulary_is_one_line(folder, tmp_path):
    shutil.copy(folder / "vocab.json", tmp_path / "vocab.json")
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nt\n")
    line = error_line(tokenization.load, tmp_path / "vocab.json")
    assert "merges.txt beside it: not the two files of one" in line


def test_vocabulary_of_the_other_model_is_one_line(folder, tmp_path):
    config = configuration.with_defaults()
    config.tokenizer.vocab_file = str(folder / "vocab.json")
    line = error_line(tokenization.load_config_tokenizer, config)
    assert "a vocabulary of byte pairs, but" in line
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a")
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    config.tokenizer.vocab_file = str(tmp_path / "vocab.txt")
    config.model.architecture = "gpt"
    line = error_line(tokenization.load_config_tokenizer, config)
    assert "a vocabulary of WordPieces, but" in line
