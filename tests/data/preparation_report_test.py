"""The report on a prepared folder: counts against the folder itself, and the page."""

import itertools
import json
from html.parser import HTMLParser

import numpy as np
import pytest
import tensorflow_datasets as tfds
from preparing import made, make_config, read, write_corpus

from bert_jax.data import prepare
from bert_jax.data.cleaning import cleaned
from bert_jax.data.report import page as preparation_page
from bert_jax.data.report import summary as preparation_report
from bert_jax.errors import UserError
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


def test_of_many_rows_some_are_read(folder, monkeypatch):
    whole = preparation_report.contents(folder).lengths
    monkeypatch.setattr(preparation_report, "_ROWS", 20)
    some = preparation_report.contents(folder).lengths
    step = -(-len(whole) // 20)
    assert step > 1
    assert some.tolist() == whole[::step].tolist()


def test_examples_are_rows(folder):
    found = preparation_report.contents(folder).examples
    assert len(found) == preparation_report.EXAMPLES
    kinds = [one.is_random_next for one in found]
    assert len(set(kinds)) == 2
    for one in found:
        assert (
            one.text_a.replace(" ", "")
            in "".join(
                f"in{n}wemet&<b>left</b>a{n * k % 7}b{k}c{n % 5}."
                for n in range(60)
                for k in range(30)
            )
            or "[UNK]" in one.text_a
        )


def test_the_text_is_short(folder):
    text = preparation_report.text(folder)
    lines = text.splitlines()
    assert len(lines) <= 25
    assert lines[0].startswith("train: ")
    assert "took" not in text  # told by the clean-up
    assert max(map(len, lines)) < 150


def test_the_clean_up_is_told_once(tmp_path, capsys):
    texts = [" ".join(f"We met {n} at {k}." for k in range(9)) for n in range(20)]
    texts += [texts[3], f"{texts[4]} Yes.\n\nA Title"]
    rows = (json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "corpus.jsonl").write_text("".join(rows))
    config = common.get_config()
    config.corpus.sources = (f"jsonl:{tmp_path}/corpus.jsonl",)
    config.corpus.data_dir = str(tmp_path / "data")
    config.corpus.dev_fraction = 0.1
    config.corpus.clean = ("headings", "exact_duplicates")
    config.tokenizer.vocab_size = 90
    folders = [prepare.prepare(config, length).folder for length in (24, 32)]
    reports = [preparation_report.text(folder) for folder in folders]
    told = "\n".join([capsys.readouterr().err, *reports])
    for line in (
        "cleaned 22 documents",
        "headings took 1 paragraphs, 0 documents",
        "exact duplicates took 1 documents",
    ):
        assert told.count(line) == 1, line
    cleaned._tell.cache_clear()  # another process, which finds the text cleaned
    prepare.prepare(config, 24)
    assert capsys.readouterr().err.startswith("cleaned 22 documents")


class _Page(HTMLParser):
    """Checks that elements are closed in their order; gathers them and the text."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)
        assert not {"src", "href", "onclick"} & dict(attrs).keys()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_is_whole_and_safe(folder):
    content = (folder / preparation_page.FILE).read_text()
    page = _Page()
    page.feed(content)
    page.close()
    assert page.open == []
    assert not {"script", "link", "img", "b", "i", "iframe"} & page.seen
    assert "http" not in content
    found = preparation_report.contents(folder)
    assert f"{found.report['totals']['train']['tokens']:,}" in page.text
    assert "A <i>title</i>" in page.text
    for one in found.examples:
        assert one.text_a in page.text
        assert one.text_b in page.text
    assert preparation_page.page(found) == content


def test_a_folder_without_pairs_of_sentences_and_without_clean_up(folder, tmp_path):
    config = common.get_config()
    config.corpus.sources = (f"jsonl:{folder.parents[1]}/corpus.jsonl",)
    config.corpus.data_dir = str(tmp_path)
    config.corpus.nsp = False
    config.tokenizer.vocab_size = 90
    plain = prepare.prepare(config, 32).folder
    assert "random" not in preparation_report.text(plain).partition("at random:")[2]
    assert "Clean-up" not in (plain / preparation_page.FILE).read_text()


def test_a_damaged_folder(tmp_path):
    (tmp_path / "preparation.json").write_text("{")
    with pytest.raises(UserError, match=r"cannot be read .* delete this folder"):
        preparation_report.text(tmp_path)


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
