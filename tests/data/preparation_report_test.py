"""The report on a prepared folder: counts against the folder itself, and the page."""

import itertools
import json

import numpy as np
import pytest
import tensorflow_datasets as tfds
from preparing import made, make_config, read, write_corpus

from bert_jax.data import prepare
from bert_jax.data import report as preparation_report
from configs import common


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of sixty documents, some with headings and one twice."""
    root = tmp_path_factory.mktemp("report")
    texts = [
        "\n\n".join(
            f"In {n} we met & <b>left</b> a{n * k % 7} b{k} c{n % 5}."
            for k in range(30)
        )
        for n in range(60)
    ]
    texts[7] += "\n\nA <i>title</i>"
    rows = (json.dumps({"text": text}) + "\n" for text in [*texts, texts[3]])
    (root / "corpus.jsonl").write_text("".join(rows))
    config = common.get_config()
    config.corpus.sources = (f"jsonl:{root}/corpus.jsonl",)
    config.corpus.data_dir = str(root / "data")
    config.corpus.dev_fraction = 0.1
    config.corpus.clean = ("headings", "exact_duplicates")
    config.tokenizer.vocab_size = 90
    return prepare.prepare(config, 32).folder


def rows(folder):
    return list(tfds.builder_from_directory(folder).as_data_source("train"))


@pytest.mark.slow
def test_lengths_and_unknown_words_are_the_folders(folder):
    found = preparation_report.contents(folder)
    expected = [
        len(r["tokens_a"]) + len(r["tokens_b"]) + 3 if len(r["tokens_b"]) else
        len(r["tokens_a"]) + 2
        for r in rows(folder)
    ]  # fmt: skip
    assert found.lengths.tolist() == expected
    tokens = np.concatenate(
        [r[n] for r in rows(folder) for n in ("tokens_a", "tokens_b")]
    )
    assert found.unknown == pytest.approx((tokens == 1).mean())
    bins = preparation_report.histogram(found)
    assert [low for low, _, _ in bins] == [1, 5, 9, 13, 17, 21, 25, 29]
    for low, high, share in bins:
        inside = [low <= length <= high for length in expected]
        assert share == pytest.approx(np.mean(inside))


def test_tokens_in_no_pair_are_counted(tmp_path, capfd):
    write_corpus(tmp_path / "corpus.txt")
    made(config := make_config(tmp_path))
    assert "warning" not in capfd.readouterr().err
    # As speech: each document is one sentence, longer than a row; no token is twice.
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 445)))
    bounds = [0, *np.cumsum(range(40, 50))]
    lines = [f"{text[i:j]}\n" for i, j in itertools.pairwise(bounds)]
    (tmp_path / "a.txt").write_text("".join(lines))
    config.corpus.sources = (f"lines:{tmp_path}/a.txt",)
    vocab = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *text)
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    config.tokenizer.vocab_file = str(tmp_path / "vocab.txt")
    rows = [row for split in ("train", "dev") for row in read(made(config), split)]
    unused = 445 - len({int(token) for a, b, _ in rows for token in (*a, *b)})
    _, no_room, drawn = capfd.readouterr().err.split("warning: ")
    assert no_room.startswith(f"{unused / 445:.1%} of the tokens are in no pair")
    assert drawn.startswith("in 100.0% of the pairs the second sentence is a random")
    config.corpus.nsp = False
    made(config)
    assert "warning" not in capfd.readouterr().err
