"""Senses: scores beside other ways to them, where the word is, one-line errors."""

import errno
import io
import itertools
import json
import os
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from experiments.insight import sense_scores, senses, word2vec

SENTENCES = Path(senses.__file__).parents[1] / "data" / "senses"
WORDS = {"bank": "bank", "bat": "bat", "spring": "spring", "sagwa": "사과", "bae": "배"}
# Of words that the run's small vocabulary has; "thecats" is several pieces.
USES = "a\tthe cats\na\ta go cats watch\nb\twhile seven it go cats\nb\tit cats\n"
RNG = np.random.default_rng(0)
TEST = "needs the test extra"


def test_scores_beside_scikit_learn():
    selection = pytest.importorskip("sklearn.model_selection", reason=TEST)
    neighbors = pytest.importorskip("sklearn.neighbors", reason=TEST)
    vectors = RNG.normal(size=(20, 6)).astype(np.float32)
    labels = [name for name in "abc" * 7][:20]
    found = sense_scores.scores(vectors, labels)
    nearest = neighbors.KNeighborsClassifier(1, metric="cosine")
    each = selection.LeaveOneOut()
    kept_out = selection.cross_val_score(nearest, vectors, labels, cv=each)
    assert found.nearest == pytest.approx(kept_out.mean())
    pairs = {True: [], False: []}
    for i, j in itertools.combinations(range(20), 2):
        cosine = np.dot(vectors[i], vectors[j])
        cosine /= np.linalg.norm(vectors[i]) * np.linalg.norm(vectors[j])
        pairs[labels[i] == labels[j]].append(cosine)
    assert found.within == pytest.approx(np.mean(pairs[True]), abs=1e-6)
    assert found.between == pytest.approx(np.mean(pairs[False]), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_p_beside_all_labellings(seed):
    vectors = np.random.default_rng(seed).normal(size=(8, 3))
    vectors[:4] += 1.0
    labels = np.array(list("aaaabbbb"))
    cosines = sense_scores.cosine(vectors)
    np.fill_diagonal(cosines, -2)
    partner = cosines.argmax(axis=1)
    observed = np.mean(labels[partner] == labels)
    chosen = [set(c) for c in itertools.combinations(range(8), 4)]
    dealt = np.array([["a" if i in some else "b" for i in range(8)] for some in chosen])
    shares = np.mean(dealt[:, partner] == dealt, axis=1)
    found = sense_scores.scores(vectors, list(labels))
    assert found.nearest == pytest.approx(observed)
    assert found.p == pytest.approx(np.mean(shares >= observed - 1e-9), abs=0.02)
    assert sense_scores.chance(list(labels)) == pytest.approx(np.mean(shares))


def test_equal_vectors_are_at_chance():
    labels = list("aaaabbbcc")
    found = sense_scores.scores(np.ones((9, 4)), labels)
    assert found.nearest == pytest.approx(sense_scores.chance(labels))
    assert found[:2] == pytest.approx((1, 1))
    assert found.p == 1.0
    # Vectors of zeros, of sentences that word2vec knows no word of, too.
    assert sense_scores.scores(np.zeros((9, 4)), labels).p == 1.0


def test_senses_that_lie_apart():
    vectors = np.repeat(np.eye(3), 12, axis=0) + RNG.normal(size=(36, 3)) * 0.1
    found = sense_scores.scores(vectors, [name for name in "abc" for _ in range(12)])
    assert found.nearest == 1
    assert found.p == pytest.approx(1 / 10_001)
    assert found.within > 0.9 > 0.3 > found.between


@pytest.mark.parametrize("name", WORDS)
def test_the_sentences_here(name):
    path = SENTENCES / f"{name}.tsv"
    uses = senses.read(str(path), WORDS[name])
    assert set(Counter(use.sense for use in uses).values()) == {12}
    assert len({use.text for use in uses}) == len(uses)
    for use in uses:
        start, end = use.word
        assert use.text[start:end].lower() == WORDS[name]
        assert use.text == unicodedata.normalize("NFC", use.text)


def test_a_korean_word_may_have_particles(tmp_path):
    lines = ("a\t사과를 먹는다", "a\t그 사과", "b\t늦은 사과에도", "b\t사과.")
    (tmp_path / "uses").write_text("\n".join(lines), encoding="utf-8")
    uses = senses.read(str(tmp_path / "uses"), "사과")
    assert [use.word for use in uses] == [(0, 2), (2, 4), (3, 5), (0, 2)]
    assert [use.particle for use in uses] == [3, 4, 7, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a cats\n", ":1: write the sense, a tab and a sentence"),
        ("\tthe cats\n", ":1: write the sense, a tab and a sentence"),
        ("a\tcats cats\n", ":1: 'cats' must be in the sentence once"),
        ("a\tcats\n\na\tcatsit\n", ":3: 'cats' must be in the sentence once"),
        ("a\tthe cats\na\ta cats\n", "two senses or more are needed"),
        ("a\tthe cats\na\ta cats\nb\tCats\n", "a: 2, b: 1"),
        ("\n", "there are none"),
        ("", "the file is empty"),
    ],
)
def test_wrong_sentences_are_one_line(text, said, tmp_path, plain, capsys):
    (tmp_path / "uses").write_text(text)
    assert senses.main(command(tmp_path, plain)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def command(folder, weights, *more):
    given = {"init_from": weights, "word": "cats", "sentences": folder / "uses"}
    flags = [f"--{name}={value}" for name, value in given.items()]
    return [*flags, f"--output={folder / 'out'}", *more]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--word=a fox",), "must be one word"),
        (("--sentences=nowhere",), "nowhere: cannot be read"),
        (("--init_from=nowhere",), "nowhere"),
        (("--text=jsonl:nowhere",), "no file matches"),
        (("--text=books",), "unknown source 'books'"),
    ],
)
def test_wrong_options_are_one_line(flags, said, tmp_path, plain, capsys):
    if flags[0].startswith("--text"):
        pytest.importorskip("gensim", reason="needs the senses extra")
    (tmp_path / "uses").write_text(USES)
    assert senses.main(command(tmp_path, plain, *flags)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert said in error


def test_the_vectors_are_the_words(plain):
    """Those of `apply` at the word's pieces, of every layer, and the table's rows."""
    bert = bert_jax.load(plain)
    texts = ("the thecats , it go", "cats watch the very lazy Thecats")
    places = [(text.lower().index("thecats"),) * 2 for text in texts]
    uses = [
        senses.Use("a", text, (start, start + 7), start + 7)
        for text, (start, _) in zip(texts, places, strict=True)
    ]
    found = senses.vectors(bert, uses, "thecats")
    assert list(found) == [senses.TABLE, "layer 0", "layer 1"]
    for row, text in enumerate(texts):
        encoding = bert.tokenizer.encode(text)
        owner = encoding.word_ids[encoding.char_to_token(uses[row].word[0])]
        at = [i for i, word in enumerate(encoding.word_ids) if word == owner]
        assert len(at) > 1  # thecats: the ##c ##at ##s
        ids = np.array([encoding.ids])
        states = bert.apply(ids, np.ones_like(ids), np.zeros_like(ids))["hidden_states"]
        for layer, state in enumerate(states):
            mean = np.asarray(state)[0, at].mean(axis=0)
            np.testing.assert_allclose(found[f"layer {layer}"][row], mean, atol=1e-5)
        table = bert.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
        still = np.asarray(table)[ids[0, at]].mean(axis=0)
        np.testing.assert_allclose(found[senses.TABLE][row], still, rtol=1e-6)


def test_a_word_beyond_the_last_position(plain):
    text = "the " * 40 + "fox"
    use = senses.Use("a", text, (160, 163), 163)
    with pytest.raises(senses.UserError, match=r"'fox' is cut off, .* 32 positions"):
        senses.vectors(bert_jax.load(plain), [use], "fox")


def test_the_whole_script(tmp_path, plain, capsys):
    (tmp_path / "uses").write_text(USES)
    assert senses.main(command(tmp_path, plain, "--text=")) == 0
    out, err = capsys.readouterr()
    assert "cats in pieces: cats (4)" in err
    found = json.loads((tmp_path / "out" / "cats.json").read_text())
    assert found["sentences"] == {"a": 2, "b": 2}
    assert list(found["vectors"]) == [senses.TABLE, "layer 0", "layer 1"]
    assert found["vectors"][senses.TABLE]["nearest"] == pytest.approx(found["chance"])
    assert "table of pieces   1.000    1.000    0.333  1.0000" in out


def test_word2vec_is_kept(tmp_path, plain, capsys):
    pytest.importorskip("gensim", reason="needs the senses extra")
    (tmp_path / "uses").write_text(USES)
    outputs = []
    for said in ("word2vec: 15 words", "trained before"):
        assert senses.main(command(tmp_path, plain)) == 0  # the run's own text
        captured = capsys.readouterr()
        assert said in captured.err
        outputs.append(captured.out)
    assert outputs[0] == outputs[1]
    assert senses.CONTEXT in outputs[0]
    left = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert left == {".json", ".bin"}
    (kept,) = (tmp_path / "out").glob("*.bin")
    whole = kept.read_bytes()
    nans = whole[:-401] + b"\xff" * 400 + whole[-1:]
    for content in (b"", whole[:-9], b"\xff" + whole, nans):
        kept.write_bytes(content)
        assert senses.main(command(tmp_path, plain)) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith(f"error: {kept}: damaged (") and "delete it" in line


def test_a_full_disk_is_named(tmp_path, plain, capsys, monkeypatch):
    pytest.importorskip("gensim", reason="needs the senses extra")
    (tmp_path / "uses").write_text(USES)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(word2vec, "_write", full)
    assert senses.main(command(tmp_path, plain)) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: {tmp_path / 'out'}/word2vec-")
    assert "No space left on device; make room there" in line


def test_word2vec_reads_the_other_words(plain):
    use = senses.Use("a", "The fox, it 사과를 go", (12, 14), 15)
    known = {",": [1.0, 0.0], "fox": [3.0, 0.0], "go": [2.0, 9.0], "사과를": [50, 50]}

    class Vectors(dict):
        vector_size = 2

    bert = bert_jax.load(plain)
    found = senses._context(Vectors(known), bert, use)
    np.testing.assert_allclose(found, [2, 3])
    assert word2vec.words(bert.tokenizer, "The fox, it") == ["the", "fox", ",", "it"]
    np.testing.assert_array_equal(word2vec.mean(Vectors(known), ["cat"]), [0, 0])


def test_the_two_largest_components():
    vectors = RNG.normal(size=(9, 5))
    decomposition = pytest.importorskip("sklearn.decomposition", reason=TEST)
    expected = decomposition.PCA(2).fit_transform(vectors)
    found = senses.principal(vectors)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)
    np.testing.assert_array_equal(senses.principal(np.ones((3, 1))), 0)


def test_the_picture_is_grey(tmp_path, plain):
    reader = pytest.importorskip("matplotlib.image", reason="needs the report extra")
    (tmp_path / "uses").write_text(USES)
    assert senses.main(command(tmp_path, plain, "--text=", "--plot")) == 0
    picture = reader.imread(io.BytesIO((tmp_path / "out" / "cats.png").read_bytes()))
    assert np.ptp(picture[..., :3], axis=-1).max() == 0
    assert (picture[..., 0] < 0.1).mean() > 0.001


def test_no_result_before_its_picture(tmp_path, plain, capsys):
    """The result says that all is there."""
    pytest.importorskip("matplotlib", reason="needs the report extra")
    (tmp_path / "uses").write_text(USES)
    (tmp_path / "out" / "cats.png").mkdir(parents=True)
    assert senses.main(command(tmp_path, plain, "--text=", "--plot")) == 2
    assert "cats.png" in capsys.readouterr().err
    assert not (tmp_path / "out" / "cats.json").exists()
