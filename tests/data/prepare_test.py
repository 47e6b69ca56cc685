"""Preparation as a whole: the output, its completeness, its name, its report."""

import json
import random
import re
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import tokenization
from bert_jax.data import chunks, corpus, prepare, workers, writing
from bert_jax.errors import Interrupted
from bert_jax.runtime import storage
from bert_jax.tokenization.wordpiece import WORDPIECE
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
from tests.runs import LIMIT


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
    for values in [
        (LENGTH, other, name),
        (48, data.tokenizer, name),
        (LENGTH, data.tokenizer, ""),
        (LENGTH, data.tokenizer, "pairs-0"),
    ]:
        line = error_line(prepare.prepare_pairs, config.corpus, *values)
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


# Preparation refused, interrupted, without room or twice at once: nothing is left.


@pytest.fixture
def broken(tmp_path):
    write_corpus(tmp_path / "corpus.txt")
    return make_config(tmp_path)


@pytest.mark.parametrize(
    ("documents", "more", "said"),
    [
        (1, b"", "one document cannot be"),
        (12, b"caf\xe9\n", r"corpus\.txt:253: byte .* is not UTF-8"),
    ],
)
def test_text_that_is_wrong_leaves_nothing(broken, tmp_path, documents, more, said):
    with write_corpus(tmp_path / "corpus.txt", documents).open("ab") as file:
        file.write(more)
    assert re.search(said, error_line(made, broken))
    assert names(broken.corpus.data_dir) == []


@pytest.mark.parametrize("exception", [KeyboardInterrupt, lambda: Interrupted(15)])
def test_interruption_leaves_nothing(broken, monkeypatch, exception):
    prepare.prepare_tokenizer(broken)
    before = names(broken.corpus.data_dir)

    def stop(*args):
        raise exception()

    monkeypatch.setattr(writing.np, "save", stop)  # of the counts, at the end
    with pytest.raises(type(exception())):
        made(broken)
    assert names(broken.corpus.data_dir) == before


def test_full_disk_leaves_nothing(broken):
    prepare.prepare_tokenizer(broken)
    before = names(broken.corpus.data_dir)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            made(broken)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.errno in storage.FULL
    assert str(raised.value.filename).startswith(broken.corpus.data_dir)
    assert names(broken.corpus.data_dir) == before


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.data import preparing
print(preparing.made(preparing.make_config(Path(sys.argv[2])), 32))
"""


@pytest.mark.slow
def test_prepare_in_two_processes_at_once(broken, tmp_path):
    root = Path(prepare.__file__).parents[2]
    command = [sys.executable, "-c", RUN, str(root), str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in "12"]
    first, second = (process.communicate(timeout=LIMIT)[0].strip() for process in both)
    assert first == second
    assert [process.returncode for process in both] == [0, 0]
    assert len(names(broken.corpus.data_dir)) == 2  # the vocabulary and the pairs
    assert read(first, "dev")


# A vocabulary: the sample of a corpus on which it is trained, and the training.


@given(st.lists(st.integers(1, 50)), st.integers(0, 400), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_vocabulary_has_the_first_ranks_that_fit(sizes, budget, seed):
    documents = [(index, "x" * size) for index, size in enumerate(sizes)]
    kept, total = [], 0
    for index, text in sorted(
        documents, key=lambda d: chunks.keyed_hash(seed, "vocabulary", d[0])
    ):
        total += len(text)
        if total > budget:
            break
        kept.append((index, text))
    expected = [text for _, text in sorted(kept)]
    texts = [text for _, text in documents]
    assert prepare.sample_documents(texts, budget, seed) == expected


SAMPLE = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "catalogue",
    "of",
    "cats",
]
DOCUMENTS = [" ".join(random.Random(i).choices(SAMPLE, k=50)) for i in range(20)]


@pytest.mark.parametrize(
    ("size", "special"),
    [(120, (0, 1, 2, 3, 4)), (10_000, (0, 100, 101, 102, 103))],
)
def test_trained_vocabulary(size, special, tmp_path):
    tokenizer = WORDPIECE.train(DOCUMENTS, size, lowercase=True)
    assert tokenizer.get_vocab_size() == size
    assert tokenization.special_ids(tokenizer)[:5] == special
    tokens = tokenizer.encode("Cats [MASK]").tokens
    assert tokens == ["[CLS]", "cats", "[MASK]", "[SEP]"]
    # The text is too small for that many tokens.
    assert tokenizer.id_to_token(size - 1).startswith("[unused")
    tokenization.save_tokenizer(tokenizer, tmp_path)
    assert len((tmp_path / "vocab.txt").read_text().splitlines()) == size
    again = WORDPIECE.train(DOCUMENTS, size, lowercase=True)
    assert again.to_str() == tokenizer.to_str()


def test_small_vocabulary_keeps_the_frequent_characters():
    tokenizer = WORDPIECE.train(DOCUMENTS, 30, lowercase=True)
    pieces = tokenizer.get_vocab()
    assert len(pieces) == 30
    assert {"t", "a", "##t", "##a"} <= pieces.keys()
    assert "g" not in pieces
    line = error_line(WORDPIECE.train, DOCUMENTS, 6, lowercase=True)
    assert "raise tokenizer" in line


TRAIN = """
import hashlib, sys
from bert_jax.tokenization.wordpiece import WORDPIECE
documents = [open(path, encoding="utf-8-sig").read() for path in sys.argv[1:]]
tokenizer = WORDPIECE.train(documents, 3000, lowercase=True)
print(hashlib.sha256(tokenizer.to_str().encode()).hexdigest())
"""


@pytest.mark.slow
def test_training_is_the_same_in_every_process(shared_data):
    books = ("austen-emma.txt", "wells-time-machine.txt")
    paths = [str(shared_data(f"corpus/gutenberg/{name}")) for name in books]
    command = [sys.executable, "-c", TRAIN, *paths]
    root = Path(tokenization.__file__).parents[2]
    runs = {subprocess.check_output(command, cwd=root, timeout=LIMIT) for _ in range(2)}
    assert len(runs) == 1


def test_accents_may_be_kept_in_lower_case():
    """Korean syllables stay whole, and é is no e."""
    texts = ["Café 사과 배 café", "사과 나무 Élan"] * 5
    kept = WORDPIECE.train(texts, 60, True, strip_accents=False)
    assert kept.encode("CAFÉ 사과", add_special_tokens=False).tokens == ["café", "사과"]
    stripped = WORDPIECE.train(texts, 60, True)
    assert "사과" not in stripped.get_vocab() and "cafe" in stripped.get_vocab()
    for rules in (True, False), (False, True), (False, False):
        assert not tokenization.build_tokenizer(
            list(kept.get_vocab()), *rules
        ).normalizer.strip_accents
