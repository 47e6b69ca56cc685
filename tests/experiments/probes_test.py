"""Probes, from files to the report."""

import json

import numpy as np
import pytest

from experiments.insight import probes

# All are tokens of the run's small vocabulary.
WORDS = ("the", "watch", "cats", "seven", "it", "go", "while", "a", "la", "se")


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
