"""IMDb's folders: reviews read, whole films held out, fields that are wrong."""

from collections import Counter

import pytest
import tensorflow_datasets as tfds

from configs.finetune import imdb
from tests.micro import read_rows
from tests.tasks.small_texts import resolved, shrunk


@pytest.fixture
def reviews(tmp_path):
    """IMDb's layout: 20 reviews for training, 2 for the test."""
    for index in range(20):
        name, word = [("pos/{}_9.txt", "good"), ("neg/{}_1.txt", "bad")][index % 2]
        path = tmp_path / "train" / name.format(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{word}\na <br />" + " b" * index)
    for name in ("pos", "neg"):
        (tmp_path / "test" / name).mkdir(parents=True)
        (tmp_path / "test" / name / "0_5.txt").write_text("c")
    config = shrunk(imdb.get_config("tiny"), tmp_path)
    config.task.data_dir = str(tmp_path)
    return config


def test_imdb(reviews):
    reviews.task.dev_fraction = 0.2
    task = resolved(reviews)
    assert task.labels == ("neg", "pos")
    assert task.splits == ("dev", "test")
    train, dev, test = (task.examples(split) for split in ("train", "dev", "test"))
    assert Counter(x["label"] for x in train) == {0: 8, 1: 8}
    assert [(x["id"], x["label"]) for x in dev] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [x["label"] for x in test] == [0, 1]
    assert not {x["text"] for x in train} & {x["text"] for x in dev}
    assert all(
        x["text"].startswith(("bad", "good")[x["label"]]) for x in [*train, *dev]
    )


def test_imdb_holds_out_whole_films(reviews, tmp_path):
    """Of 20 reviews of 5 films, which are in another order in each class."""
    reviews.task.dev_fraction = 0.4
    for name, step in (("pos", 1), ("neg", 3)):
        urls = [f"film {step * index // 2 % 5}" for index in range(20)]
        (tmp_path / "train" / f"urls_{name}.txt").write_text("\n".join(urls) + "\n")
    task = resolved(reviews)
    found = {}
    for split in ("train", "dev"):
        found[split] = set()
        for example in task.examples(split):
            index = example["text"].count(" b")
            step = 1 if example["text"].startswith("good") else 3
            found[split].add(step * index // 2 % 5)
    assert found["train"] | found["dev"] == set(range(5))
    assert not found["train"] & found["dev"]
    assert Counter(x["label"] for x in task.examples("dev")) == {0: 4, 1: 4}


@pytest.mark.slow
def test_imdb_from_tfds(reviews, make_builder, tmp_path, shared_data):
    """Real reviews, some of them twice, in two orders: TFDS shuffles."""
    features = {
        "text": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["neg", "pos"]),
    }
    real = read_rows(shared_data("imdb/train.jsonl"))
    rows = [{"text": row["text"], "label": int(row["label"])} for row in real]
    rows += rows[::10]
    held = []
    for name, order in {"one": rows, "other": rows[::-1]}.items():
        home = make_builder(tmp_path / name, "imdb", order, features)
        reviews.task.data_dir, reviews.task.labels = f"tfds:{home}", ()
        task = resolved(reviews)
        assert task.labels == ("neg", "pos")
        train, dev = task.examples("train"), task.examples("dev")
        assert len(train) + len(dev) == len(rows)
        assert not {x["text"] for x in train} & {x["text"] for x in dev}
        assert Counter(x["label"] for x in dev) == {
            label: sum(row["label"] == label for row in rows) // 10 for label in (0, 1)
        }
        (notice,) = task.notices
        assert "do not name their films" in notice and task.notices[notice] == len(rows)
        held.append(sorted(x["text"] for x in dev))
    assert held[0] == held[1]
