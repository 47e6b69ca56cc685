"""Held-out text appears nowhere in the training text."""

import hashlib
import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_jax.data import chunks, corpus, overlap, prepare, workers
from tests.data.preparing import make_config, prepared, read
from tests.micro import error_line

VOCABULARY = "vocab/bert-base-uncased-vocab.txt"


def config_of(folder, source):
    return make_config(folder, **{"corpus.sources": (source,), "corpus.nsp": False})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.characters(max_codepoint=300)), max_size=4))
@example(
    ["".join(map(chr, range(128))), "The_1 cat", "the_1, CAT!", "\x0bthe  cat\x1c"]
)
def test_key_is_of_the_words_in_lower_case(sentences):
    texts = [" ".join(re.findall(r"\w+", sentence.lower())) for sentence in sentences]
    digests = [hashlib.blake2b(text.encode(), digest_size=8) for text in texts]
    wanted = b"".join(digest.digest() for digest in digests)
    assert overlap.sentence_keys(sentences).tobytes() == wanted


def test_rows_that_are_in_train_too():
    train = [
        {"text": "A  b", "label": 0},
        {"text": "a b", "text_b": None, "label": 1},
        {"text": "a", "text_b": "b", "label": 1},
    ]
    dev = [{"text": "a B"}, {"text": "c"}, {"text": "a", "text_b": "c"}]
    assert overlap.shared_texts(train, {"dev": dev, "test": dev[1:]}) == {
        "dev: texts that are in train too, of 3": 1,
        "train: texts with two labels or more": 1,
    }
    numbers = [row | {"label": float(row["label"])} for row in train]
    words = [{"words": ["a", "b"]}]
    assert overlap.shared_texts(numbers + words, {"dev": words}) == {
        "dev: texts that are in train too, of 1": 1
    }


def stream(folder, split):
    """All tokens of a split, one after the other."""
    return [int(token) for first, *_ in read(folder, split) for token in first]


def report(folder):
    return json.loads((folder / "preparation.json").read_text())["totals"]


def spelt(tokens):
    return f" {' '.join(map(str, tokens))} "


@pytest.mark.slow
def test_overlap_of_real_text_is_none(shared_data, tmp_path):
    """Of books, each of which ends with the same licence."""
    books = shared_data("corpus/gutenberg") / "[acw]*-[aep]*.txt"
    config = config_of(tmp_path, f"text:{books}")
    config.tokenizer.vocab_file = str(shared_data(VOCABULARY))
    folder, tokenizer, _ = prepared(config, 128)
    split_of = chunks.split_rule(config.corpus)
    texts = {"train": [], "dev": []}
    for index, document in enumerate(chunks.cut_documents(config.corpus)):
        texts[split_of(index)] += [
            sentence
            for piece in document
            for sentence in corpus.split_sentences(piece, "en")
        ]

    def spelt_texts(split):
        found = tokenizer.encode_batch_fast(texts[split], add_special_tokens=False)
        return [spelt(encoding.ids) for encoding in found]

    train, held_back = map(spelt_texts, ("train", "dev"))
    # Verbatim but for what the tokenizer drops.
    copied = set(train) & set(held_back)
    dev = spelt(stream(folder, "dev"))
    # A short one may well end a longer one.
    assert [s for s in copied if s.count(" ") > 20 and s in dev] == []
    totals = report(folder)
    assert totals["dev"]["left_out"] >= len(copied) > 0
    assert totals["dev"]["left_out"] + totals["dev"]["sentences"] == len(held_back)
    assert totals["dev"]["left_out"] < 0.1 * len(held_back)


def write_copies(path):
    """Writes twenty documents of unique sentences, every fourth a copy except for its
    case and marks. The same license ends each."""
    rng = random.Random(0)
    words = [f"word{n}" for n in range(200)]
    shared = [" ".join(rng.choices(words, k=6)) for _ in range(20)]
    with open(path, "w", encoding="utf-8") as file:
        for number in range(20):
            for place in range(40):
                text = f"in {number} at {place} " + " ".join(rng.choices(words, k=4))
                if place % 4 == 0:
                    text = shared[(number + place) % 20]
                    text = text.upper() if number % 2 else f'"{text}"'
                file.write(text + ".\n")
            file.write("All rights reserved.\n\n")


@pytest.mark.slow
def test_copies_are_left_out_of_dev_and_counted(tmp_path, monkeypatch):
    write_copies(tmp_path / "a.txt")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(workers, "available_cores", lambda: 1)
    config = config_of(tmp_path, f"sentences:{tmp_path}/a.txt")
    folder = prepared(config).folder
    totals = report(folder)
    documents = totals["dev"]["documents"]
    assert documents >= 2
    # Each document loses ten copies and the license. Training loses nothing.
    assert totals["dev"]["left_out"] == 11 * documents
    assert totals["dev"]["sentences"] == 30 * documents
    assert totals["train"]["sentences"] == 41 * (20 - documents)
    share = totals["dev"]["tokens"] / sum(its["tokens"] for its in totals.values())
    assert (
        f"held out: {30 * documents} sentences ({share:.1%} of the tokens)\n"
        f"not among them: {11 * documents} (26.8%) that the training text has too"
    ) in prepare.report_text(prepare.open_folder(folder))


def test_corpus_of_copies_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(["A sentence.\nAnother."] * 8))
    config = config_of(tmp_path, f"sentences:{tmp_path}/a.txt")
    prepare.prepare_tokenizer(config)
    before = sorted(Path(config.corpus.data_dir).iterdir())
    assert "the text repeats itself" in error_line(prepared, config)
    assert sorted(Path(config.corpus.data_dir).iterdir()) == before
