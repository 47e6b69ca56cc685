"""Probes find what a layer has and nothing else. Controls, parts, intervals, errors."""

import json

import numpy as np
import pytest

import bert_jax
from experiments.insight import probes
from experiments.insight.probes import Set

# All are tokens of the run's small vocabulary.
WORDS = ("the", "watch", "cats", "seven", "it", "go", "while", "a", "la", "se")


def planted(count, seed):
    """Three layers: noise, the tag, the word. Which tag a word has is chance."""
    rng = np.random.default_rng(seed)
    words = rng.integers(10, size=count)
    tags = rng.integers(3, size=count)
    noise = rng.normal(size=(3, count, 12)) * 0.3
    noise[1] += np.eye(12)[tags]
    noise[2] += np.eye(12)[words]
    vectors = np.moveaxis(noise, 0, 1).astype(np.float32)
    return Set(vectors, [f"T{tag}" for tag in tags], [WORDS[word] for word in words])


def test_layer_that_knows():
    found = probes.fit_part(planted(600, 0), planted(300, 1), seed=0)
    noise, tag, word = found["accuracy"]
    assert 0.25 < noise < 0.45
    assert tag > 0.85
    assert 0.25 < word < 0.45
    # The control is learnt from the words, and only where these are.
    assert found["control"][2] > 0.8 > 0.7 > max(found["control"][:2])
    assert found["vectors"] == [600, 300]


def test_rounding_is_no_feature():
    """Of layer 0's [CLS], which is the same everywhere, nothing is left."""
    rng = np.random.default_rng(0)
    same = np.full((50, 4), 0.7, np.float32) + rng.normal(size=(50, 4)) * 1e-7
    given = np.concatenate([same, rng.normal(size=(50, 4))], axis=1).astype(np.float32)
    train, dev = probes.scaled(given, given + 1)
    assert np.abs(train[:, :4]).max() == 0
    np.testing.assert_allclose(train[:, 4:].std(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(train[:, 4:].mean(axis=0), 0, atol=1e-6)
    shift = 1 / given[:, 4:].std(axis=0)
    np.testing.assert_allclose((dev - train)[:, 4:], np.tile(shift, (50, 1)), rtol=1e-4)


def examples(count):
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 6, size=count)
    return [probes.Example(str(i), ("w",) * n, ("t",) * n) for i, n in enumerate(sizes)]


def test_parts_share_no_sentence():
    given = examples(53)
    dealt = probes.deal(given, 5)
    texts = [e.row for part in dealt for e in part]
    assert sorted(texts) == sorted(e.row for e in given)
    assert {len(part) for part in dealt} == {10, 11}
    for part in probes.deal(given, 5, most=12):
        assert sum(len(e.labels) for e in part) <= 12


def test_labels_stand_beside_their_vectors(plain):
    """A word's vector is its first token's. A long sentence's end is left out."""
    bert = bert_jax.load(plain)
    long = tuple(WORDS * 4)
    given = [
        probes.Example(("thecats", "it"), ("thecats", "it"), ("A", "B")),
        probes.Example(long, long, ("T",) * 40),
        probes.Example(("a",), ("a",), ("C",)),
    ]
    found = probes.labelled(bert, "words", given)
    assert found.labels == ["A", "B", *["T"] * 30, "C"]
    assert found.words == ["thecats", "it", *long[:30], "a"]
    assert found.vectors.shape[:2] == (33, 2)
    encoding = bert.tokenizer.encode(["thecats", "it"], is_pretokenized=True)
    ids = np.array([encoding.ids])
    states = bert.apply(ids, np.ones_like(ids), np.zeros_like(ids))["hidden_states"]
    places = [encoding.word_ids.index(0), encoding.word_ids.index(1)]
    for layer, state in enumerate(states):
        expected = np.asarray(state)[0, places]
        np.testing.assert_allclose(found.vectors[:2, layer], expected, atol=1e-5)


@pytest.fixture
def data(tmp_path):
    """Columns in which a tag is the word's, and SST-2's in which "cats" is positive."""
    rng = np.random.default_rng(0)
    for name, count in (("train", 60), ("dev", 30)):
        lines = []
        for words in rng.choice(WORDS, size=(count, 5)):
            lines += [f"{word} {'VN'[word in WORDS[2:4]]} x" for word in words]
            lines.append("")
        (tmp_path / name).write_text("-DOCSTART- X x\n\n" + "\n".join(lines))
        texts = [" ".join(words) for words in rng.choice(WORDS, size=(count, 5))]
        rows = [f"{text}\t{int('cats' in text)}" for text in texts]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
    return tmp_path


def command(data, weights, *more):
    given = {"init_from": weights, "train": data / "train", "dev": data / "dev"}
    given |= {"tag_column": 1, "parts": 2, "output": data / "out"}
    return [*(f"--{name}={value}" for name, value in given.items()), *more]


def test_whole_script(data, plain, capsys):
    pytest.importorskip("matplotlib", reason="needs the report extra")
    assert probes.main(command(data, plain, f"--sst2={data}", "--words=120")) == 0
    out = capsys.readouterr().out
    found = json.loads((data / "out" / "results.json").read_text())["probes"]
    tags, mean, cls = found.values()
    assert tags["vectors"] == [240, 150]
    # The embeddings have the word, and so its tag.
    assert tags["layers"][0]["accuracy"]["mean"] == pytest.approx(1, abs=0.03)
    assert tags["layers"][0]["control"]["mean"] > 0.9
    assert tags["baselines"]["word's most frequent tag"]["mean"] == 1
    assert mean["layers"][0]["accuracy"]["mean"] > 0.8
    assert "control" not in mean["layers"][0]
    # Before the first layer [CLS] has seen nothing.
    majority = cls["baselines"]["majority"]
    assert cls["layers"][0]["accuracy"] == majority
    assert "tags of words:\n240 for training, 150 in dev" in out
    assert "word's most frequent tag" in out
    assert "(SST_2___CLS_.png)" in (data / "out" / "report.md").read_text()
