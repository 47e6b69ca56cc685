"""Preparation as a whole: the output, its completeness, its name, its report."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.data import chunks, corpus, prepare, workers
from tests.data.preparing import (
    LENGTH,
    WORDS,
    contents,
    made,
    make_config,
    names,
    prepared,
    read,
    write_corpus,
)
from tests.micro import error_line


@pytest.fixture
def config(tmp_path):
    write_corpus(tmp_path / "corpus.txt")
    return make_config(tmp_path)


def totals_of(folder):
    return json.loads((folder / "preparation.json").read_text())["totals"]


def documents_of(tokenizer, tokens):
    """The `documentN` words among some tokens."""
    return {tokenizer.id_to_token(int(token)) for token in tokens} - {*WORDS, "."}


def test_prepared_files(config):
    folder = made(config)
    tokenizer = prepare.prepare_tokenizer(config)
    # [UNK] may occur: the vocabulary is small and has not seen the dev split.
    special = {*tokenization.special_ids(tokenizer)} - {tokenizer.token_to_id("[UNK]")}
    train, dev = read(folder, "train"), read(folder, "dev")
    assert len(train) > 60 and len(dev) > 10
    counts: Counter[bool] = Counter()
    for a, b, is_random_next in train + dev:
        assert len(a) > 0 < len(b) and len(a) + len(b) <= LENGTH - 3
        assert not special & {*map(int, a), *map(int, b)}
        counts[is_random_next] += 1
    assert min(counts.values()) > 0.3 * sum(counts.values())

    expected = np.zeros(300, np.int64)
    for a, b, _ in train:
        np.add.at(expected, list(a) + list(b), 1)
    counted = prepare.open_folder(folder).token_counts()
    np.testing.assert_array_equal(counted, expected)
    assert counted.dtype == np.int64

    totals = totals_of(folder)
    assert totals["train"]["pairs"] == len(train)
    assert totals["dev"]["documents"] + totals["train"]["documents"] == 12
    assert totals["dev"]["sentences"] + totals["train"]["sentences"] == 240
    assert names(config.corpus.data_dir) == sorted(
        [folder.name, *(n for n in names(config.corpus.data_dir) if "vocab" in n)]
    )


def test_splits_share_no_document(config):
    # Whole words, so that tokens identify their document.
    pieces = [*tokenization.SPECIAL_TOKENS, ".", *WORDS]
    pieces += [f"document{n}" for n in range(12)]
    path = Path(config.corpus.data_dir).parent / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n")
    config.tokenizer.vocab_file = str(path)
    tokenizer = prepare.prepare_tokenizer(config)
    folder = made(config)
    found: dict[str, set[str]] = {}
    for split in ("train", "dev"):
        found[split] = set()
        for a, b, is_random_next in read(folder, split):
            in_a, in_b = documents_of(tokenizer, a), documents_of(tokenizer, b)
            assert len(in_a) <= 1 >= len(in_b)
            if in_a and in_b:
                assert (in_a != in_b) == is_random_next
            found[split] |= in_a | in_b
    assert not found["train"] & found["dev"]
    assert len(found["dev"]) >= 2
    assert len(found["train"] | found["dev"]) == 12


def test_prepare_without_sentence_pairs(config):
    config.corpus.nsp = False
    rows = read(folder := made(config), "train")
    assert not any(len(b) or is_random_next for _, b, is_random_next in rows)
    assert max(len(a) for a, _, _ in rows) == LENGTH - 2
    totals = totals_of(folder)
    assert sum(len(a) for a, _, _ in rows) == totals["train"]["tokens"]


@pytest.mark.parametrize(
    "change",
    [
        {"corpus.seed": 1},
        {"corpus.short_seq_prob": 0.2},
        {"corpus.dev_fraction": 0.2},
        {"corpus.nsp": False},
        {"corpus.language": "de"},
        {"corpus.max_document_bytes": 500},
        {"tokenizer.vocab_size": 200},
        {"tokenizer.lowercase": False},
    ],
)
def test_folder_name_has_what_shapes_the_data(config, tmp_path, change):
    folder = made(config)
    other = made(make_config(tmp_path, **change))
    assert other != folder
    assert len(read(other, "train")) > 0


def test_seed_of_a_run_is_not_that_of_its_data(config, tmp_path):
    folder = made(config)
    assert made(make_config(tmp_path, seed=1)) == folder
    assert len(names(config.corpus.data_dir)) == 2


def test_changed_text_and_length_name_another_folder(config, tmp_path):
    folder = made(config)
    assert made(config, 48) != folder
    write_corpus(tmp_path / "corpus.txt", documents=13)
    assert made(config) != folder


def test_folder_is_opened_without_its_text(config, tmp_path):
    data = prepared(config)
    (tmp_path / "corpus.txt").unlink()
    name = data.folder.name
    again = prepare.prepare_pairs(config.corpus, LENGTH, data.tokenizer, name)
    assert again.folder == data.folder
    assert again.report == data.report
    assert again.tokenizer.to_str() == data.tokenizer.to_str()
    pieces = [*tokenization.SPECIAL_TOKENS, "a"]
    other = tokenization.build_tokenizer(pieces, lowercase=True)
    for given in [
        (LENGTH, other, name),
        (48, data.tokenizer, name),
        (LENGTH, data.tokenizer, ""),
        (LENGTH, data.tokenizer, "pairs-0"),
    ]:
        line = error_line(prepare.prepare_pairs, config.corpus, *given)
        assert "no file matches" in line


@pytest.mark.slow
def test_number_of_cores_changes_nothing(config, tmp_path, monkeypatch):
    """Nor the text left out of dev, which is in other processes' chunks."""
    path = tmp_path / "corpus.txt"
    path.write_text(path.read_text().replace("\n\n", "\nAll rights reserved.\n\n"))
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2000)
    results = []
    for cores in (1, 2):
        monkeypatch.setattr(workers, "available_cores", lambda cores=cores: cores)
        config.corpus.data_dir = str(tmp_path / f"on{cores}")
        results.append(made(config))
    assert contents(results[0]) == contents(results[1])
    totals = totals_of(results[0])
    assert totals["dev"]["left_out"] == totals["dev"]["documents"]


def test_special_tokens_in_the_text_are_text(config, tmp_path):
    (tmp_path / "corpus.txt").write_text(
        "\n\n".join(f"{n} [MASK] b.\n[SEP] {n} [CLS]." for n in "cdefghij")
    )
    rows = read(made(config), "train")
    special = set(tokenization.special_ids(prepare.prepare_tokenizer(config)))
    for a, b, _ in rows:
        assert not (special - {1}) & {*map(int, a), *map(int, b)}  # 1: [UNK]


def test_trained_vocabulary_is_kept_and_described(config, capfd):
    prepare.prepare_tokenizer(config)
    said = capfd.readouterr().err
    assert "trained a vocabulary of 300 pieces on " in said
    (name,) = names(config.corpus.data_dir)
    folder = Path(config.corpus.data_dir) / name
    assert names(folder) == ["metadata.json", "tokenizer.json", "vocab.txt"]
    prepare.prepare_tokenizer(config)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("count", [4, 99, 300])
def test_small_corpora_are_split(config, tmp_path, count):
    write_corpus(tmp_path / "corpus.txt", documents=count, sentences=1)
    for fraction in (0.001, 0.1, 0.9):
        config.corpus.dev_fraction = fraction
        splits = Counter(map(chunks.split_rule(config.corpus), range(count)))
        assert min(splits["dev"], splits["train"]) >= 2
        assert abs(splits["dev"] - fraction * count) < 3 + 4 * (count * 0.1) ** 0.5


@pytest.mark.parametrize(("count", "nsp"), [(2, True), (3, False)])
def test_prepare_takes_two_documents(config, tmp_path, count, nsp):
    write_corpus(tmp_path / "corpus.txt", documents=count)
    config.corpus.nsp = nsp
    folder = made(config)
    assert read(folder, "train") and read(folder, "dev")


def test_chunks_hold_two_documents_and_no_crumbs(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    rng = random.Random(0)
    for _ in range(200):
        sizes = [rng.choice([5, 30, 150]) for _ in range(rng.randint(4, 40))]
        documents = [[corpus.Document("x" * size, "wrapped")] for size in sizes]
        split_of = lambda i: "train" if i % 4 < 2 else "dev"  # noqa: E731
        filled = list(chunks.group_chunks(documents, split_of))
        for split in ("train", "dev"):
            mine = [chunk for chunk in filled if chunk.split == split]
            assert [chunk.number for chunk in mine] == list(range(len(mine)))
            for chunk in mine:
                assert len(chunk.documents) >= 2
                size = sum(len(d.text) for (d,) in chunk.documents)
                assert size >= 50 or len(mine) == 1
        together = sorted(len(d.text) for chunk in filled for (d,) in chunk.documents)
        assert together == sorted(sizes)


@pytest.mark.parametrize("size", [None, 100])
def test_damaged_table_is_named_in_one_line(config, size):
    data = prepared(config)
    for path in (data.folder / "train").iterdir():
        if size is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:size])
    line = error_line(data.table, "train")
    assert re.search(f"{data.folder}: cannot be read .*; delete", line)


@pytest.mark.slow
def test_report_has_the_figures_of_the_folder(tmp_path):
    write_corpus(tmp_path / "corpus.txt", documents=60)
    path = tmp_path / "corpus.txt"
    path.write_text(path.read_text().replace("\n\n", "\nAll rights reserved.\n\n"))
    config = make_config(tmp_path, **{"tokenizer.vocab_size": 20})
    folder = made(config)
    text = prepare.report_text(prepare.open_folder(folder))
    rows = read(folder, "train")
    tokens = np.concatenate([tokens for a, b, _ in rows for tokens in (a, b)])
    assert f"a pair of train: {len(tokens) / len(rows):.1f} tokens" in text
    assert f"[UNK]: {(tokens == 1).mean():.3%} of train's tokens" in text
    totals = totals_of(folder)
    assert f"{len(rows):,} pairs" in text and totals["dev"]["left_out"] > 0
    assert f"not among them: {totals['dev']['left_out']:,} (" in text
