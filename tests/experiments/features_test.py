"""Feature-based tagging, from words to the table."""

import json

import pytest

from experiments.paper import features
from tests import stand_ins

# The corpus's words, all in the vocabulary: cats and dogs are entities, and so are the
# words between "over" and "dog".
SENTENCES = (
    ("the quick brown fox jumps over a lazy dog", "O O O O O O B-X I-X I-X"),
    ("seven cats watch it go", "O B-Y O O O"),
    ("while it jumps a fox watch the dog", "O O O O O O O B-Y"),
    ("cats go", "B-Y O"),
    ("the brown fox", "O O O"),
)


def columns(sentences) -> str:
    return "\n".join(
        "".join(f"{w}\t{t}\n" for w, t in zip(words.split(), tags.split(), strict=True))
        for words, tags in sentences
    )


@pytest.fixture
def data(tmp_path):
    for split in ("train", "dev", "test"):
        times = 4 if split == "train" else 1
        (tmp_path / split).write_text(columns(SENTENCES * times))
    return tmp_path


@pytest.fixture
def command(data, plain):
    """Makes a command's arguments. `plain` has one layer."""

    def make(**options):
        given = {
            "init_from": plain,
            "train": data / "train",
            "dev": data / "dev",
            "output": data / "out",
            "size": 8,
            "seeds": 2,
            "config.train.batch_size": 8,
            "config.train.num_epochs": 3.0,
            "config.evaluate.batch_size": 4,  # 20 rows of train and 5 of dev: 7 batches
            "config.optimizer.learning_rate": 0.02,
        }
        return [f"--{name}={value}" for name, value in (given | options).items()]

    return make


def test_learns_what_was_planted(command, data, capsys, monkeypatch):
    stand_ins.run_here(monkeypatch)
    # Each epoch ends with an evaluation, so there are few. Each length of a batch is a
    # program, so all batches have a long sentence.
    (data / "train").write_text(columns(SENTENCES * 20))
    sizes = {"config.train.batch_size": 20, "config.evaluate.batch_size": 20}
    options = {"test": data / "test", "config.train.num_epochs": 12.0, **sizes}
    assert features.main(command(choices="sum_all", **options)) == 0
    out = capsys.readouterr().out
    results = json.loads((data / "out" / "results.json").read_text())
    found = results["choices"]["sum_all"]
    for split in ("dev", "test"):
        assert found[split]["restarts"] == [1.0, 1.0], out
    assert "100.00 +- 0.00" in out and "95.5" in out
    assert "majority tag everywhere" in out
