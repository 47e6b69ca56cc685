"""A cleaned corpus: what is left out, that nothing else is, and that both are kept."""

import hashlib
import json
import random

import pytest

from bert_jax import tokenization
from bert_jax.config import fields
from bert_jax.data import chunks, prepare, workers
from bert_jax.data.cleaning import cleaned, settings
from bert_jax.errors import UserError
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


def test_exact_duplicates(tmp_path):
    """The first one stays; case, marks and line breaks do not matter."""
    one, two = prose(1), prose(2)
    write(tmp_path, [one, two, one.upper(), one.replace("\n\n", " "), prose(3)])
    config = make_config(tmp_path, "exact_duplicates")
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


def test_paragraphs_and_short_documents(tmp_path):
    write(
        tmp_path,
        [
            f"CHAPTER I\n\n{prose(1)}\n\n- an item.\n\nWe use cookies.",
            f"A title\n\n{prose(2, 40)}",
            "Contents\n\nIndex",
        ],
    )
    config = make_config(tmp_path, "min_length", "lists", "headings", "boilerplate")
    assert texts(config) == [prose(1)]
    taken = told(config)["taken"]
    assert list(taken) == ["boilerplate", "headings", "lists", "min_length"]
    assert [its["paragraphs"] for its in taken.values()] == [1, 4, 1, 0]
    assert [its["documents"] for its in taken.values()] == [0, 1, 0, 1]


def messy(seed):
    """Documents of every kind that a stage takes, in any order."""
    rng = random.Random(seed)
    found = []
    for number in range(rng.randint(5, 25)):
        text = prose(rng.randint(0, 12), rng.choice([24, 60, 200]))
        parts = text.split("\n\n")
        for extra in ("A TITLE", "1. item", "Use cookies.", "a b c d e f g h i j"):
            if rng.random() < 0.4:
                parts.insert(rng.randint(0, len(parts)), extra)
        if rng.random() < 0.3:
            parts[-1] = f"Document {number} ends here."
        found.append("\n\n".join(parts))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_what_is_cleaned_is_clean(tmp_path, seed):
    """A second clean-up takes nothing; the names' order does not matter."""
    (tmp_path / "dev.txt").write_text(f"{prose(3)} a b c d e f g h i j {prose(5)}")
    fields = {
        "corpus.clean_against": (f"{tmp_path}/dev.txt",),
        "corpus.clean_overlap_words": 8,
    }
    names = [name for name in settings.STAGES if name != "language"]
    write(tmp_path, messy(seed))
    once = texts(make_config(tmp_path, *names, **fields))
    random.Random(seed).shuffle(names)
    again = make_config(tmp_path, *names, **fields)
    assert texts(again) == once
    assert 0 < len(once) < len(messy(seed))
    write(tmp_path, once)
    assert texts(again) == once
    taken = told(again)["taken"].values()
    assert {amount for its in taken for amount in its.values()} == {0}


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_documents_decides_only_which_copy_stays(tmp_path, seed):
    names = [name for name in settings.STAGES if name not in ("language", "overlap")]
    left = set()
    documents = messy(seed)
    for _ in range(3):
        write(tmp_path, documents)
        left.add(len(texts(make_config(tmp_path, *names))))
        random.Random(seed).shuffle(documents)
    assert len(left) == 1


@pytest.mark.slow
def test_number_of_cores_and_size_of_batches_change_nothing(tmp_path, monkeypatch):
    write(tmp_path, [text for seed in range(3) for text in messy(seed)])
    names = [name for name in settings.STAGES if name not in ("language", "overlap")]
    made = []
    for cores, batch in ((1, 1 << 20), (2, 3000)):
        monkeypatch.setattr(workers, "cores", lambda cores=cores: cores)
        monkeypatch.setattr(cleaned, "_BATCH", batch)
        config = make_config(tmp_path, *names)
        config.corpus.data_dir = str(tmp_path / str(cores))
        folder = cleaned.clean(config)
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert sorted(made[0]) == ["cleaning.json", "taken.txt.gz"]
    assert made[0] == made[1]


def test_nothing_is_left(tmp_path):
    write(tmp_path, [prose(1), prose(2)])
    config = make_config(tmp_path, "min_length", **{"corpus.clean_min_words": 999})
    with pytest.raises(UserError, match=r"took every document \(min_length: 2\)"):
        texts(config)
    assert not list((tmp_path / "data").glob("cleaned*"))


@pytest.mark.slow
def test_stages_shape_the_data_and_its_vocabulary(tmp_path):
    write(tmp_path, [prose(seed) for seed in range(12)] + [prose(3)])
    (tmp_path / "dev.txt").write_text(prose(20))
    against = {"corpus.clean_against": (f"{tmp_path}/dev.txt",)}
    folders = {}
    for names, more in (
        ((), {}),
        (("exact_duplicates",), {}),
        (("near_duplicates",), {}),
        (("near_duplicates",), {"corpus.clean_similarity": 0.7}),
        (("overlap",), against),
    ):
        config = make_config(tmp_path, *names, **more)
        data = prepare.prepare(config, 32)
        folders[data.folder.name] = data.report
        assert data.fits(config, 32)
        assert not data.fits(make_config(tmp_path, "lists"), 32)
    assert len(folders) == 5
    kept = [sum(r["totals"][s]["documents"] for s in chunks.SPLITS)
            for r in folders.values()]  # fmt: skip
    assert kept == [13, 12, 12, 12, 13]
    assert len(list((tmp_path / "data").glob("vocabulary-*"))) == 5
    before = data.report
    (tmp_path / "dev.txt").write_text(prose(21))
    now = prepare.prepare(config, 32).report
    assert "clean_against" in prepare.changes(before, now, config.corpus.sources)


def test_the_config_names_the_stages():
    assert fields._TABLE["corpus.clean"](settings.STAGES) is None
    said = fields._TABLE["corpus.clean"](("deduplicate",))
    assert said == f"choose among {', '.join(settings.STAGES)}"
