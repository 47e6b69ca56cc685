"""Streams of words and their windows, against sentences read one after the other."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax.families.elmo import characters, streams
from bert_jax.families.elmo.batches import Windows
from configs import elmo
from tests.micro import error_line

LONG = "x" * 10_000
TRAIN = [["The", "cat", "sat", "."], ["A", "dog", ",", "the", "dog", "."]]
TRAIN = [*TRAIN, ["the", "cat", "'", "s", LONG, "."], ["Why", "?"], ["dog"]]


def make_config(folder: Path, **task) -> ConfigDict:
    config = elmo.get_config("tiny")
    config.corpus.sources = (f"sentences:{folder / 'text.txt'}",)
    config.corpus.data_dir = str(folder / "data")
    config.tokenizer.vocab_size = 9
    config.task.update(task)
    return config


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """Two documents: the first is train, the second dev, which repeats a sentence."""
    monkeypatch.setattr(
        streams.chunks, "split_rule", lambda config: ["train", "dev"].__getitem__
    )
    text = ["The cat sat.", "A dog, the dog.", f"the cat's {LONG}.", "Why?", "dog", ""]
    text += ["Why ?", "A zebra sat.", "dog the"]
    (tmp_path / "text.txt").write_text("\n".join(text) + "\n")
    config = make_config(tmp_path)
    return config, streams.prepare(config)


def test_words_are_all_there_by_frequency(prepared):
    config, data = prepared
    words = [word for sentence in TRAIN for word in sentence]
    counts = sorted({w: -words.count(w) for w in words}.items(), key=lambda x: x[::-1])
    expected = ["<S>", "</S>", "<UNK>", *(word for word, _ in counts), "zebra"]
    assert data.words == expected
    found = dict(zip(data.words, data.counts.tolist(), strict=True))
    assert found["dog"] == 3 and found["zebra"] == 0 and sum(found.values()) == 19
    tokenizer = data.tokenizer(config)
    assert tokenizer.encode("dog, zebra").tokens == ["dog", ",", "<UNK>"]
    assert tokenizer.get_vocab_size() == 9
    totals = data.report["totals"]
    assert totals["train"] == {"sentences": 5, "words": 19}
    assert totals["dev"] == {"sentences": 2, "words": 6} and totals["left_out"] == 1
    assert totals["cut"] == 1  # the long word, of which 48 bytes are read


def test_split_is_the_text(prepared):
    _, data = prepared
    stream = data.stream("train")
    words = [data.words[i] for i in stream.ids]
    assert words == list(itertools.chain(*(["<S>", *s] for s in TRAIN)))
    assert [words[i] for i in stream.starts[:-1]] == ["<S>"] * 5
    dev = [data.words[i] for i in data.stream("dev").ids]
    assert dev == ["<S>", "A", "zebra", "sat", ".", "<S>", "dog", "the"]


def stream_of(sentences, backward):
    """(word read, word to predict) one after the other, from bilm's rules."""
    for sentence in sentences:
        ends = ("</S>", "<S>") if backward else ("<S>", "</S>")
        inner = sentence[::-1] if backward else sentence
        words = [ends[0], *inner, ends[1]]
        yield from itertools.pairwise(words)


def known(data, word):
    index = data.words.index(word)
    return index if index < 9 else 2


def check(data, batch, sentences, places):
    """A row of a batch against the words at these places of the text."""
    for name, backward in (("", False), ("_backward", True)):
        pairs = list(stream_of(sentences, backward))
        read, following = zip(*(pairs[place] for place in places), strict=True)
        spelt = characters.encode_words(read, 12)
        np.testing.assert_array_equal(batch[f"characters{name}"], spelt)
        targets = [known(data, word) for word in following]
        np.testing.assert_array_equal(batch[f"targets{name}"], targets)


def epoch_order(data, seed, epoch):
    order = np.random.default_rng((seed, epoch)).permutation(len(TRAIN))
    return [TRAIN[i] for i in order]


def test_windows_of_two_epochs(prepared, monkeypatch):
    _, data = prepared
    # Rare words are spelt.
    monkeypatch.setattr("bert_jax.families.elmo.batches._KEPT", 6)
    windows = Windows(data, "train", 9, 12)
    assert windows.places == 24 and windows.steps(2, 3) == 4
    batches = list(itertools.islice(windows.train(0, 2, 3, slice(None), 7), 10))
    for step, batch in enumerate(batches):
        sentences = epoch_order(data, 7, step // 4)
        for row in range(2):
            start = row * 12 + step % 4 * 3
            own = {name: column[row] for name, column in batch.items()}
            check(data, own, sentences, range(start, start + 3))
    # From any step on, of any rows, they are the same.
    for step, rows in ((1, slice(1, 2)), (5, np.array([0])), (8, slice(None))):
        other = next(windows.train(step, 2, 3, rows, 7))
        for name, column in other.items():
            np.testing.assert_array_equal(column, batches[step][name][rows])


def test_held_out_text_is_read_once(prepared):
    _, data = prepared
    windows = Windows(data, "dev", 9, 12)
    sentences = [["A", "zebra", "sat", "."], ["dog", "the"]]
    (one,) = windows.once(4, 3, slice(None))
    assert one["weights"].tolist() == [[1] * 3, [1] * 3, [1, 1, 0], [0] * 3]
    check(data, {k: v[0] for k, v in one.items()}, sentences, range(3))
    check(data, {k: v[1] for k, v in one.items()}, sentences, range(3, 6))


def test_prepared_data_is_found_again_without_its_text(prepared, tmp_path):
    config, data = prepared
    again = streams.prepare(config)
    assert again.folder == data.folder
    (tmp_path / "text.txt").write_text("other text\n\nmore of it\n")
    kept = streams.prepare(config, data.folder.name)
    assert kept.words == data.words
    config.tokenizer.lowercase = True  # the recorded data has other settings
    line = error_line(streams.prepare, config, data.folder.name)
    assert "the text has changed since the run started" in line


def test_streams_that_cannot_be_prepared(prepared):
    config, data = prepared
    line = error_line(Windows(data, "train", 9, 12).steps, 5, 6)
    assert "a step takes 30 words, and the text has 24" in line
    (data.folder / "words.txt").write_bytes(b"\xff")
    assert "delete this folder" in error_line(streams.prepare, config)
