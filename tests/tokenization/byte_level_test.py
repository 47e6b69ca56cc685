"""Byte-level BPE: trained, read and written, with the tokens of `transformers`."""

import gzip
import json
import random
import re
import shutil

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.processors import RobertaProcessing, TemplateProcessing

from bert_jax import tokenization
from bert_jax.families.gpt.vocabulary import BYTE_PAIRS
from bert_jax.family import Family
from bert_jax.registry import FAMILIES
from bert_jax.tokenization.byte_level import ANGLED, BRACKETED
from tests.micro import error_line

TEXT = """the quick brown fox jumps over the lazy dog while seven cats watch it go
the dog was quick and the fox was lazy so the cats watched them both going home"""
TEXTS = ("korean", "imdb")
SAMPLE = 3_000  # lines of real text, out of many


@pytest.fixture(autouse=True, scope="module")
def families():
    """Families of each kind, as those of bert_jax/families/ name them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in (("angled", ANGLED), ("bracketed", BRACKETED)):
            stand_in = Family(vocabulary=kind, model_type="")
            patch.setitem(FAMILIES, name, stand_in)
        yield


def trained(kind=ANGLED, size=300, lowercase=False):
    return kind.train([TEXT] * 3, size, lowercase)


def edited(folder, change):
    """A tokenizer.json of another form than ours."""
    form = json.loads(trained().to_str())
    change(form)
    (folder / "tokenizer.json").write_text(json.dumps(form))
    return folder / "tokenizer.json"


def saved(tmp_path, tokenizer):
    tokenization.save_tokenizer(tokenizer, tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", [ANGLED, BRACKETED])
def test_vocabulary_is_learnt_alike_each_time(kind):
    one, two = trained(kind), trained(kind)
    assert one.to_str() == two.to_str()
    assert one.get_vocab_size() == 300
    assert tokenization.special_ids(one)[:5] == (1, 3, 0, 2, 4)
    assert one.token_to_id("\u0120the") is not None
    text = "the dog \u00e9 \u6f22"
    assert one.decode(one.encode(text).ids) == text


@pytest.mark.parametrize(
    ("kind", "around"),
    [
        (ANGLED, ["<s>", "a", "</s>", "</s>", "b", "</s>"]),
        (BRACKETED, ["[CLS]", "a", "[SEP]", "b", "[SEP]"]),
    ],
)
def test_pairs_stand_between_the_special_tokens(kind, around):
    tokenizer = trained(kind)
    encoding = tokenizer.encode("a", "b")
    assert encoding.tokens == around
    assert set(encoding.type_ids) == {0}
    special = tokenization.special_ids(tokenizer)
    assert [tokenizer.id_to_token(i) for i in special.between] == around[2:-2]
    assert special.last == tokenizer.token_to_id(around[-1])


def test_tokenizer_that_puts_a_space_before_a_text_is_of_the_kind(tmp_path):
    def change(form):
        form["pre_tokenizer"]["add_prefix_space"] = True

    tokenizer = tokenization.load(edited(tmp_path, change))
    assert isinstance(tokenization.kind_of(tokenizer), type(ANGLED))
    assert tokenizer.encode("the").ids == tokenizer.encode(" the").ids


def test_lowercased_vocabulary_lowers_and_strips():
    tokenizer = trained(lowercase=True)
    assert tokenizer.encode("THE D\u00d3G").ids == tokenizer.encode("the dog").ids


@pytest.mark.parametrize("kind", [ANGLED, BRACKETED])
def test_vocabulary_is_read_alike_in_both_forms(kind, tmp_path):
    tokenizer = trained(kind)
    folder = saved(tmp_path, tokenizer)
    tokenizer.model.save(str(folder))
    for name in ("vocab.json", "tokenizer.json"):
        again = tokenization.load(folder / name)
        assert again.to_str() == tokenizer.to_str()
    (folder / "tokenizer.json").unlink()
    assert tokenization.load_folder_tokenizer(folder).to_str() == tokenizer.to_str()
    assert tokenization.kind_of(again) in (ANGLED, BRACKETED)


def test_files_of_one_name_are_told_apart_by_what_they_hold(tmp_path):
    gpt, ours = tmp_path / "gpt", tmp_path / "ours"
    made = {gpt: BYTE_PAIRS.train([TEXT] * 3, 300, lowercase=True), ours: trained()}
    for folder, tokenizer in made.items():
        folder.mkdir()
        tokenizer.model.save(str(folder))
    assert tokenization.kind_of(tokenization.load(gpt / "vocab.json")) is BYTE_PAIRS
    assert tokenization.kind_of(tokenization.load(ours / "vocab.json")).has(trained())
    escaped = json.dumps(json.loads((ours / "vocab.json").read_text()))  # as released
    (ours / "vocab.json").write_text(escaped)
    assert tokenization.load(ours / "vocab.json").to_str() == trained().to_str()


def foreign(first, last, processor, **ids):
    """A tokenizer as another program made it: of bytes, with the tokens after them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: n for n, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>", *ids.values(), first, last])
    tokenizer.add_tokens([AddedToken("|||EMAIL|||", normalized=True)])
    pair = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    tokenizer.post_processor = processor(*pair)
    return tokenizer


def templated(first, last):
    return TemplateProcessing(
        single=f"{first[0]} $A {last[0]}",
        pair=f"{first[0]} $A {last[0]} $B:1 {last[0]}:1",
        special_tokens=[first, last],
    )


def test_special_tokens_are_read_from_a_tokenizer(tmp_path):
    ids = {"unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}
    own = foreign("[CLS]", "[SEP]", templated, **ids)
    own.save(str(tmp_path / "tokenizer.json"))
    found = tokenization.load(tmp_path / "tokenizer.json")
    assert tokenization.special_ids(found) == (258, 257, 260, 261, 259, 261, (261,))
    # Another model's own mark is a token anywhere, BERT's are text there.
    found.encode_special_tokens = True
    assert "<|endoftext|>" in found.encode("a<|endoftext|>b").tokens
    assert "[MASK]" not in found.encode("a [MASK] b").tokens
    # A word's place does not begin with the space before it.
    assert found.encode("a b").offsets == [(0, 0), (0, 1), (2, 2), (2, 3), (0, 0)]


def test_vocabulary_name_of_the_first_tokens_form_counts():
    def roberta(first, last):
        return RobertaProcessing(last, first, trim_offsets=True, add_prefix_space=False)

    ids = {"pad": "<pad>", "other": "[PAD]", "mask": "<mask>"}
    tokenizer = foreign("<s>", "</s>", roberta, **ids)
    expected = (257, 257, 260, 261, 259, 261, (261, 261))
    assert tokenization.special_ids(tokenizer) == expected


def without_processor(form):
    form["post_processor"] = None


def renamed(old):
    def change(form):
        for token in form["added_tokens"]:
            token["content"] = token["content"].replace(old, "<x>")
        vocabulary = form["model"]["vocab"]
        vocabulary["<x>"] = vocabulary.pop(old)

    return change


def test_missing_processor_is_added(tmp_path):
    found = tokenization.load(edited(tmp_path, without_processor))
    assert found.encode("a", "b").ids == trained().encode("a", "b").ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (renamed("<mask>"), r"json: the vocabulary has no <mask> or \[MASK\]; add it"),
        (
            lambda form: (renamed("</s>")(form), without_processor(form)),
            "its post_processor adds 0 tokens to a text; one before and one after it",
        ),
    ],
)
def test_tokenizer_without_special_tokens_is_refused(change, message, tmp_path):
    line = error_line(tokenization.load, edited(tmp_path, change))
    assert re.search(message, line)


def test_pieces_become_text_again():
    tokens = trained().encode("the quick d\u00f3g").tokens[1:-1]
    assert ANGLED.text(tokens) == "the quick d\u00f3g"


def lines(folder, count):
    """Lines of a folder's files of text, evenly drawn."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".tsv", ".csv", ".txt", ".json", ".jsonl", ".conll"):
            found += path.read_text(encoding="utf-8").splitlines()
    rng = random.Random(0)
    return [line[:2000] for line in rng.sample(found, min(count, len(found)))]


@pytest.fixture(scope="module")
def real(shared_data, tmp_path_factory):
    """A folder with a vocabulary of 5,000 tokens trained on real text."""
    path = shared_data("corpus/english/06-expository.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        texts = [json.loads(next(file))["text"] for _ in range(150)]
    folder = tmp_path_factory.mktemp("real")
    learnt = ANGLED.train(texts, 5000, lowercase=False)
    learnt.model.save(str(folder))
    return saved(folder, learnt)


@pytest.mark.parametrize("name", TEXTS)
def test_byte_level_ids_of_real_texts_are_those_of_transformers(
    name, real, shared_data
):
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    files = {"vocab": str(real / "vocab.json"), "merges": str(real / "merges.txt")}
    theirs = transformers.RobertaTokenizer(**files)
    ours = tokenization.load(real / "vocab.json")
    texts = [text for text in lines(shared_data(name), SAMPLE) if text]
    assert len(texts) > 10
    assert theirs(texts)["input_ids"] == [e.ids for e in ours.encode_batch(texts)]
    pairs = list(zip(texts[::2], texts[1::2], strict=False))
    found = theirs(*map(list, zip(*pairs, strict=True)))["input_ids"]
    assert found == [e.ids for e in ours.encode_batch(pairs)]


def test_transformers_opens_what_is_saved(real, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    folder = tmp_path / "saved"
    shutil.copytree(real, folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = tokenization.load(folder / "tokenizer.json")
    for text in ("a <mask> b", "it's  two spaces\tand\nmore", "\u00e9\u6f22\U0001f600"):
        assert theirs(text)["input_ids"] == ours.encode(text).ids
