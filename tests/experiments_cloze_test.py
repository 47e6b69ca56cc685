"""The cloze test of held-out sentences."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bert_jax import tokenization
from experiments.english import cloze


def test_cloze(plain, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cloze, "WORDS", (3, 30))
    monkeypatch.setattr(cloze, "RANKS", (0, 60))
    kept, rank = [], cloze._ranked
    monkeypatch.setattr(
        cloze, "_ranked", lambda *given: kept.append(rank(*given)) or kept[-1]
    )
    files = []
    for name in ("one", "other"):
        files.append(tmp_path / name)
        given = [f"--init_from={plain}", "--items=20", f"--output={files[-1]}"]
        assert cloze.main(given) == 0
    said = capsys.readouterr().out
    items, again = (json.loads(file.read_text())["items"] for file in files)
    assert items == again and len(items) == 20
    vocabulary = tokenization.load(plain / "vocab.txt")
    (pairs,) = json.loads((plain / "data.json").read_text())["folders"].values()
    config = json.loads((plain / "config.json").read_text())
    counts = np.load(Path(config["corpus"]["data_dir"]) / pairs / "token_counts.npy")
    held = Path(config["corpus"]["sources"][0].partition(":")[2]).read_text()
    (ranked, _) = kept  # once for each start
    places = [counts[vocabulary.token_to_id(word)] for word in ranked]
    assert places == sorted(places, reverse=True) and set(ranked) <= set(
        held.lower().split()
    )
    for item in items:
        assert len({ranked.index(w) // cloze.STRETCH for w in item["choices"]}) == 1
        assert item["text"].replace("[MASK]", item["choices"][0]) in held
        assert len(set(item["choices"])) == 4
        assert not set(item["choices"][1:]) & set(item["text"].split())
    right = np.mean([item["model"] == 0 for item in items])
    row = next(line for line in said.splitlines() if line.startswith("all"))
    assert float(row.split()[2]) == pytest.approx(100 * right, abs=0.06)


def test_interval_of_a_share():
    assert cloze._share(np.array([True] * 25)) == "100.0 (86.7 to 100.0)"
    assert cloze._share(np.array([True] * 5 + [False] * 5)) == "50.0 (23.7 to 76.3)"


def test_equally_frequent_choices_win_equally_often():
    chosen = cloze.most_frequent(np.tile([7, 7, 3, 7], (3000, 1)))
    assert np.bincount(chosen, minlength=4) == pytest.approx([1000, 1000, 0, 1000], 0.1)
    assert cloze.most_frequent(np.array([[1, 2, 9, 3]])) == [2]


def test_cloze_offers_whole_words_of_sentences_that_fit():
    words = [f"word{chr(97 + i)}" for i in range(24)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "begin"]
    model = models.WordPiece(
        {w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]"
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    counts = np.arange(len(vocabulary), 0, -1)
    counts[-1] = 1000  # the most frequent piece, of beginner and beginning
    ranked = cloze._ranked(tokenizer, counts, {*words, "beginner"})
    assert ranked == words
    places = {word: place for place, word in enumerate(ranked)}
    sentence = " ".join(["the", *words[:8], "?" * 50])
    given = (sentence, tokenizer, places, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloze, "RANKS", (0, 24))
        assert cloze._item("kind", *given, longest=128) is not None
        assert cloze._item("kind", *given, longest=9) is None


def test_cloze_of_a_text_without_such_words(plain, capsys):
    assert cloze.main([f"--init_from={plain}"]) == 2  # a vocabulary of 64 pieces
    assert "larger vocabulary" in capsys.readouterr().err
