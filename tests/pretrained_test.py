"""`bert_jax.load(...)`: predict, fill_mask, words and sentences, in Python."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import pytest

import bert_jax
from bert_jax import tokenization
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
