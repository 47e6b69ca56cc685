"""A cleaned corpus: what is left out, that nothing else is, and that both are kept."""

import gzip
import hashlib
import json
import random
from pathlib import Path

import pytest

from bert_jax import tokenization
from bert_jax.data import chunks, corpus, prepare, workers
from bert_jax.data.cleaning import cleaned, languages, settings, stages
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from configs import common

WORDS = [f"{a}{b}" for a in ("tor", "mel", "sin", "var") for b in ("a", "en", "is")]


def make_config(folder, *clean, **changes):
    config = common.get_config()
    config.corpus.sources = (f"jsonl:{folder}/corpus.jsonl",)
    config.corpus.data_dir = str(folder / "data")
    config.corpus.dev_fraction = 0.1
    config.corpus.clean = clean
    config.tokenizer.vocab_size = 300
    config.update_from_flattened_dict(changes)
    return config


def write(folder, texts):
    rows = (json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "corpus.jsonl").write_text("".join(rows), encoding="utf-8")


def prose(seed, words=80):
    """Paragraphs of sentences that no other seed gives."""
    rng = random.Random(seed)
    found = []
    for number in range(words // 8):
        found.append(f"At {seed} {number} {' '.join(rng.choices(WORDS, k=6))}.")
    return "\n\n".join(" ".join(found[i : i + 2]) for i in range(0, len(found), 2))


def texts(config):
    return [document.text for document in cleaned.documents(config)]


def told(config):
    return cleaned.report(cleaned.clean(config))


# Of the main branch before there was a clean-up.
PAIRS = "pairs-c02d163d2e732ba1"
BYTES = {
    "pairs-dev.array_record-00000-of-00001": "c3b5ee8270b72fd5",
    "pairs-train.array_record-00000-of-00001": "da55521550d34ebc",
    "preparation.json": "70f7cfaf0f8afe29",
}


def test_without_stages_names_and_bytes_are_those_of_before(tmp_path, monkeypatch):
    write(tmp_path, [prose(seed) for seed in range(12)])
    pieces = [*tokenization.SPECIAL_TOKENS, *"0123456789.", "at", *WORDS]
    pieces += [f"##{digit}" for digit in range(10)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    vocabulary = str(tmp_path / "vocab.txt")
    config = make_config(tmp_path, **{"tokenizer.vocab_file": vocabulary})
    monkeypatch.setattr(prepare.metadata, "version", lambda name: "1.0")
    monkeypatch.setattr(prepare, "_digest", lambda tokenizer: "of the vocabulary")
    folder = prepare.prepare(config, 32).folder
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in folder.iterdir()
        if "array_record" in path.name or path.name == "preparation.json"
    }
    assert (folder.name, found) == (PAIRS, BYTES)
    assert [path.name for path in folder.parent.iterdir() if "clean" in path.name] == []
