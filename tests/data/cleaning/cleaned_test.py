"""A cleaned corpus: what is left out, that nothing else is, and that both are kept."""

import hashlib
import json
import random

from bert_jax import tokenization
from bert_jax.config import fields
from bert_jax.data import prepare
from bert_jax.data.cleaning import cleaned, settings
from tests.data.preparing import make_config

WORDS = [f"{a}{b}" for a in ("tor", "mel", "sin", "var") for b in ("a", "en", "is")]


def config_of(folder, *clean, **changes):
    own = {"corpus.sources": (f"jsonl:{folder}/corpus.jsonl",), "corpus.clean": clean}
    return make_config(folder, **own, **changes)


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


# Of the main branch before there was a clean-up; preparation.json since counts random
# second sentences too.
PAIRS = "pairs-c02d163d2e732ba1"
BYTES = {
    "pairs-dev.array_record-00000-of-00001": "c3b5ee8270b72fd5",
    "pairs-train.array_record-00000-of-00001": "da55521550d34ebc",
    "preparation.json": "26a03481af708b3f",
}


def test_without_stages_names_and_bytes_are_those_of_before(tmp_path, monkeypatch):
    write(tmp_path, [prose(seed) for seed in range(12)])
    pieces = [*tokenization.SPECIAL_TOKENS, *"0123456789.", "at", *WORDS]
    pieces += [f"##{digit}" for digit in range(10)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    vocabulary = str(tmp_path / "vocab.txt")
    config = config_of(tmp_path, **{"tokenizer.vocab_file": vocabulary})
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


def test_exact_duplicates(tmp_path):
    """The first one stays; case, marks and line breaks do not matter."""
    one, two = prose(1), prose(2)
    write(tmp_path, [one, two, one.upper(), one.replace("\n\n", " "), prose(3)])
    config = config_of(tmp_path, "exact_duplicates")
    assert texts(config) == [one, two, prose(3)]
    found = told(config)
    assert found["read"]["documents"] == 5
    assert found["kept"] == {
        "documents": 3,
        "bytes": sum(map(len, (one, two, prose(3)))),
    }
    assert found["taken"]["exact_duplicates"]["documents"] == 2
    examples = found["examples"]["exact_duplicates"]
    assert sorted(example["document"] for example in examples) == [2, 3]
    assert all(example["of"].startswith("document 0: At 1 0") for example in examples)


def test_the_config_names_the_stages():
    assert fields._TABLE["corpus.clean"](settings.STAGES) is None
    said = fields._TABLE["corpus.clean"](("deduplicate",))
    assert said == f"choose among {', '.join(settings.STAGES)}"
