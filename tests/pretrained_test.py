"""`bert_jax.load(...)`: predict, fill_mask, words and sentences, in Python."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import pytest

import bert_jax
from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.data import rows
from bert_jax.tokenization.byte_level import ANGLED, BRACKETED
from bert_jax.training import run_config
from tests import documented
from tests.close import assert_close
from tests.micro import error_line, write_rows
from tests.runs import here

TEXTS = ["the quick [MASK] fox", "a lazy dog", "[MASK] cats watch [MASK]"]
pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def model(plain):
    return bert_jax.load(plain)


@pytest.mark.slow
def test_answers_are_those_of_the_mode(model, plain, tmp_path):
    rows = [{"text": text, "id": n} for n, text in enumerate(TEXTS)]
    rows.append({"text": "a dog", "text_b": "seven [MASK]"})
    source = write_rows(tmp_path / "rows.jsonl", rows)
    out, _ = here(f"--workdir={plain}", "--mode=predict", f"--input={source}")
    expected = [json.loads(line) for line in out.splitlines()]
    found = model.predict(rows)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for one, other in zip(ours["masks"], theirs["masks"], strict=True):
            assert [g["token"] for g in one] == [g["token"] for g in other]
            shares = ([g["probability"] for g in guesses] for guesses in (one, other))
            np.testing.assert_allclose(*shares, rtol=1e-4)
    assert model.fill_mask(TEXTS[0]) == model.predict(TEXTS[:1])[0]["masks"]
    assert model.predict([]) == []
    table = model.predict(pyarrow.table({"text": TEXTS}))
    assert table.column_names == ["text", "masks"]
    expected = [row["masks"] for row in model.predict(TEXTS)]
    assert table["masks"].to_pylist() == expected
    numbers = np.array([f"{text} {n}" for n, text in enumerate(TEXTS)])
    assert [row["text"] for row in model.predict(numbers)] == numbers.tolist()


@pytest.mark.slow
def test_vectors_are_the_hidden_states(model):
    special = tokenization.special_ids(model.tokenizer)
    words = model.words(["seven cats", ["a", "lazy", "dog"]], layers=(0, -1))
    means = model.sentences(["seven cats", "a lazy dog"], layer=-1)
    for text, (names, vectors), mean in zip(
        ["seven cats", "a lazy dog"], words, means, strict=True
    ):
        encoding = model.tokenizer.encode(text)
        ids = jnp.asarray([encoding.ids])
        states = model.apply(ids, ids * 0 + 1, ids * 0)["hidden_states"]
        first = [encoding.word_ids.index(n) for n in range(len(names))]
        assert names == text.split()
        for place, layer in enumerate((0, -1)):
            expected = states[layer][0, jnp.asarray(first)]
            assert_close(vectors[:, place], expected)
        inner = ~np.isin(encoding.ids, (special.cls, special.sep))
        expected = np.asarray(states[-1])[0][inner].mean(axis=0)
        assert_close(mean, expected)


@pytest.mark.slow
def test_vectors_need_no_pooler(model):
    before = model.words(["a lazy dog"])[0][1]
    del model.params["bert"]["pooler"]
    model._extracting.clear()
    np.testing.assert_array_equal(model.words(["a lazy dog"])[0][1], before)
    table = pyarrow.table({"id": [1], "text": ["a lazy dog"]})
    np.testing.assert_array_equal(model.words(table)[0][1], before)
    size = model.config.hidden_size
    assert model.sentences(["a dog"], layer=-1).shape == (1, size)
    assert model.sentences([], layer=-1).shape == (0, size) and model.words([]) == []
    assert model.encode([])["hidden_states"].shape[::2] == (0, size)


@pytest.fixture(scope="module")
def loaded(plain):
    return bert_jax.load(plain)


ALL = "sentences encode words"
TABLE = pyarrow.table({"a": ["a"], "b": ["b"]})


@pytest.mark.parametrize(
    ("names", "given", "error", "said"),
    [
        ("predict", ["a dog", {"words": []}], ValueError, "row 1: "),
        ("predict", "a dog", TypeError, "a list"),
        (ALL, "a dog", TypeError, "a list of texts is required, not one str"),
        (ALL, {"a dog"}, TypeError, "not one set"),
        (ALL, [1, None], TypeError, "text 0: 1 is not a string"),
        (ALL, np.array(["a", None]), TypeError, "text 1: None is not a string"),
        (ALL, TABLE, TypeError, "not a, b: pass one of these"),
        ("sentences", ["a", "\ud83d"], ValueError, "text 1 is not Unicode"),
    ],
)
def test_texts_that_are_wrong(loaded, names, given, error, said):
    for name in names.split():
        assert said in error_line(getattr(loaded, name), given, error=error)
    assert "no layer 2" in error_line(loaded.words, ["a dog"], layers=(2,))


def test_parameters_trained_outside_are_saved(plain, tmp_path):
    model = bert_jax.load(plain)
    changed = jax.tree.map(lambda x: x + 0.01, model.params)
    model.save(tmp_path / "mine", changed)
    again = bert_jax.load(tmp_path / "mine")
    jax.tree.map(np.testing.assert_array_equal, again.params, changed)
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "trained further" in card and "Scores" not in card
    model.save(tmp_path / "same")
    assert "Scores" in (tmp_path / "same" / "README.md").read_text()
    assert "mine" in error_line(model.save, tmp_path / "mine")


# `encode`: the model's inputs, and each token's position in the text.


PIECES = [*tokenization.SPECIAL_TOKENS, "the", "caf", "##e", "cats"]
PIECES += ["un", "##seen", "."]
ENCODED_TEXTS = ["The café.", "unseen  cats", "東京 the [MASK]"]


@pytest.fixture
def tokenizer():
    return tokenization.build_tokenizer(PIECES, lowercase=True)


def columns(tokenizer, texts, texts_b=None):
    return rows.batch_columns(rows.encode_texts(tokenizer, texts, texts_b, 32), 0)


def test_offsets_are_in_the_text_as_it_was_given(tokenizer):
    found = columns(tokenizer, ENCODED_TEXTS)
    expected = [
        ["", "The", "caf", "é", ".", ""],
        ["", "un", "seen", "cats", ""],
        ["", "東", "京", "the", "[MASK]", ""],
    ]
    for row, (text, parts) in enumerate(zip(ENCODED_TEXTS, expected, strict=True)):
        places = found["offsets"][row][: len(found["tokens"][row])]
        assert [text[a:b] for a, b in places] == parts
    np.testing.assert_array_equal(found["word_ids"][1], [-1, 0, 0, 1, -1, -1])
    np.testing.assert_array_equal(found["offsets"][1][-2:], 0)
    np.testing.assert_array_equal(found["input_mask"][1], [1, 1, 1, 1, 1, 0])
    assert found["tokens"][1] == ["[CLS]", "un", "##seen", "cats", "[SEP]"]


def test_second_text_counts_from_its_own_start(tokenizer):
    found = columns(tokenizer, ["the cats"], ["unseen cats"])
    second = found["segment_ids"][0] == 1
    expected = [(0, 2), (2, 6), (7, 11), (0, 0)]
    np.testing.assert_array_equal(found["offsets"][0][second], expected)
    np.testing.assert_array_equal(found["word_ids"][0][second], [0, 0, 1, -1])
    np.testing.assert_array_equal(found["word_ids"][0][~second], [-1, 0, 1, -1])


@pytest.mark.slow
def test_they_are_what_the_model_was_given(plain):
    model = bert_jax.load(plain)
    found = model.encode(["the quick fox", "a"], ["seven cats", "it"])
    given = [found[name] for name in ("input_ids", "input_mask", "segment_ids")]
    outputs = model.apply(*given)
    last = outputs["hidden_states"][-1] * given[1][..., None]
    assert_close(found["hidden_states"], last)
    assert_close(found["pooled"], outputs["pooled"])
    for row, tokens in enumerate(found["tokens"]):
        ids = [model.tokenizer.token_to_id(token) for token in tokens]
        assert list(found["input_ids"][row][found["input_mask"][row] == 1]) == ids
    assert found["offsets"].shape == (*given[0].shape, 2)


@pytest.mark.parametrize("texts_b", [None, ["Cats, unseen", "é", "."]])
def test_encode_is_as_in_transformers(transformers, tokenizer, tmp_path, texts_b):
    tokenization.save_tokenizer(tokenizer, tmp_path)
    theirs = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    form = {"return_offsets_mapping": True, "return_tensors": "np"}
    expected = theirs(ENCODED_TEXTS, texts_b, padding=True, **form)
    found = columns(tokenizer, ENCODED_TEXTS, texts_b)
    for name, column in (
        ("input_ids", "input_ids"),
        ("attention_mask", "input_mask"),
        ("token_type_ids", "segment_ids"),
        ("offset_mapping", "offsets"),
    ):
        np.testing.assert_array_equal(found[column], expected[name])
    for row, words in enumerate(found["word_ids"]):
        own = [-1 if word is None else word for word in expected.word_ids(row)]
        np.testing.assert_array_equal(words, own)
        real = found["input_mask"][row] == 1
        tokens = [t for t, r in zip(expected.tokens(row), real, strict=True) if r]
        assert found["tokens"][row] == tokens


def test_model_that_computes_no_numbers_has_no_vectors(plain):
    """Each of its weights is finite."""
    model = bert_jax.load(plain)
    model.params = jax.tree.map(lambda x: x * 1e38, model.params)
    line = error_line(model.encode, ["the quick fox", "a"])
    assert "computes NaN or infinity" in line


@pytest.mark.parametrize("kind", [ANGLED, BRACKETED])
def test_mask_is_named_without_the_space_before_it(kind):
    trained = kind.train(["the cats"], 270, lowercase=False)
    mask = trained.id_to_token(tokenization.special_ids(trained).mask)
    found = columns(trained, [f"the {mask} cats  {mask}"])
    assert found["tokens"][0].count(mask) == 2
    ids = [trained.token_to_id(token) for token in found["tokens"][0]]
    assert ids == list(found["input_ids"][0])


# The weights in the repository: they open, and they have learnt English.


MINI = Path(__file__).parents[1] / "bert_jax" / "weights" / "mini"


def test_mini_is_small_and_says_how_it_was_made():
    assert sum(path.stat().st_size for path in MINI.iterdir()) < 16e6
    made = json.loads((MINI / "config.json").read_text("utf-8"))["bert_jax"]
    assert made["step"] == made["config"]["train"]["num_steps"] == 4000
    card = (MINI / "README.md").read_text("utf-8")
    assert "configs/english.py:size=mini" in card and "CC BY-SA" in card


def test_command_of_its_card_is_how_it_was_made():
    """All that decides a number is as in the last training of the card."""
    # Newer fields have their default there.
    made = configuration.complete_config(
        weights.find_source(MINI).run_config(), MINI
    ).to_dict()
    shown = [command.words for command in documented.commands(MINI / "README.md")]
    *_, words = (each for each in shown if any("--config=" in word for word in each))
    fields = [word for word in words if word.startswith("--config.")]
    now = configuration.load_config("configs/english.py:size=mini", fields).to_dict()
    assert "--config=configs/english.py:size=mini" in words and len(fields) > 5
    for config in (made, now):
        del config["train"]["log_every"], config["corpus"]["data_dir"]
        del config["model"]["vocab_size"]  # 0: the tokenizer's
    made, now = (json.loads(json.dumps(config)) for config in (made, now))  # tuples
    decisive = ("seed", "model", "task", "masking", "corpus", "optimizer", "phase2")
    for name in (*decisive, "train"):
        assert now[name] == made[name], name


@pytest.fixture(scope="module")
def mini():
    return bert_jax.load(MINI)


@pytest.mark.slow
def test_mini_fills_gaps(mini):
    guesses = mini.fill_mask("The United [MASK] of America.")
    assert guesses[0][0]["token"] == "states"


def test_mini_answers_on_any_device_however_it_was_trained(tmp_path):
    shutil.copytree(MINI, tmp_path, dirs_exist_ok=True)
    content = (MINI / "config.json").read_text("utf-8")
    fused = content.replace('"attention": "einsum"', '"attention": "fused"')
    assert content != fused
    (tmp_path / "config.json").write_text(fused)
    begin = {"init_from": tmp_path}
    own = run_config.config_of(MINI / "no-run", None, begin, is_inference=True).model
    assert (own.dtype, own.attention) == ("float32", "einsum")
    given = begin | {"model.dtype": "bfloat16", "model.attention": "fused"}
    own = run_config.config_of(MINI / "no-run", None, given, is_inference=True).model
    assert (own.dtype, own.attention) == ("bfloat16", "fused")
