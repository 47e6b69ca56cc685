"""Feature-based tagging: vectors on disk, restarts together, kills, errors, scores."""

import json
import os
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs import finish, kill, start, wait_until

import bert_jax
from bert_jax.models.tagger import FeatureTagger
from experiments import feature_cache, feature_training, features
from experiments.feature_choices import CHOICES, chosen

PROGRAM = ("-m", "experiments.features")
# Of the corpus's words, all in the vocabulary: cats and dogs are entities, and so is
# what stands between "over" and "dog".
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
    """Makes a command's arguments; `plain` has one layer."""

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
            "config.optimizer.learning_rate": 0.02,
        }
        return [f"--{name}={value}" for name, value in (given | options).items()]

    return make


def results(folder):
    """results.json without what differs from run to run."""

    def without(value):
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k != "seconds"}
        return value

    return without(json.loads((folder / "results.json").read_text()))


@pytest.fixture
def opened(command):
    """The parts of a command, as `features.run` makes them."""

    def open_(*flags, **options):
        given, fields = features.parse([*command(**options), *flags])
        bert = bert_jax.load(given.init_from)
        task = features.Ner(features.settings(given, fields, bert), bert.tokenizer)
        task.resolve()
        return given, task, bert

    return open_


def test_what_the_table_reads():
    twelve = {name: choice.states(12) for name, choice in CHOICES.items()}
    assert twelve == {
        "embeddings": [0],
        "second_to_last": [11],
        "last": [12],
        "sum_last_four": [9, 10, 11, 12],
        "concat_last_four": [9, 10, 11, 12],
        "sum_all": list(range(1, 13)),
    }
    assert chosen("", 1) == (
        ["embeddings", "last", "sum_all"],
        ["second_to_last", "sum_last_four", "concat_last_four"],
    )
    assert chosen("", 4)[1] == []
    assert CHOICES["sum_last_four"].states(4) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_in_numpy(name):
    """What the BiLSTM reads of each of the six, beside sums written out."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(13, 2, 3, 4)).astype(np.float32)  # states, batch, words
    choice = CHOICES[name]
    model = FeatureTagger(labels=2, size=3, mixes=choice.mixes)
    given = jnp.asarray(np.moveaxis(hidden[choice.states(12)], 0, 2))
    mask = jnp.ones((2, 3), jnp.int32)
    params = model.init(jax.random.key(0), given, mask)["params"]
    if choice.mixes:
        raw = rng.normal(size=given.shape[2]).astype(np.float32)
        params["mix"] = {"weights": jnp.asarray(raw), "scale": jnp.float32(1.5)}
    _, kept = model.apply(
        {"params": params}, given, mask, capture_intermediates=True, mutable=True
    )
    inputs = {
        "embeddings": lambda: hidden[0],
        "second_to_last": lambda: hidden[-2],
        "last": lambda: hidden[-1],
        "sum_last_four": lambda: mean(hidden[-4:], raw),
        "concat_last_four": lambda: np.concatenate(hidden[-4:], axis=-1),
        "sum_all": lambda: mean(hidden[1:], raw),
    }[name]()
    if choice.mixes:
        (found,) = kept["intermediates"]["mix"]["__call__"]
        np.testing.assert_allclose(found, inputs, rtol=1e-5, atol=1e-6)
        return
    # Without a sum the BiLSTM reads them as they are, beside each other.
    width = params["bilstm"]["kernel_0"].value.shape[1]
    np.testing.assert_array_equal(given.reshape(2, 3, -1), inputs)
    assert width == inputs.shape[-1]


def mean(states, raw):
    weights = np.exp(raw) / np.exp(raw).sum()
    return 1.5 * sum(
        weight * state for weight, state in zip(weights, states, strict=True)
    )


@pytest.mark.parametrize("context", [False, True])
def test_the_vectors_are_the_models(opened, context):
    """Each word's vectors are `apply`'s at its first piece, of its own row."""
    given, task, bert = opened(*["--document_context"] * context)
    splits, about = features.vectors(given, task, bert, ["train", "dev"])
    word = 0
    lengths = []
    for feature in task.features("dev"):
        ids = np.asarray(feature.columns["input_ids"])[None]
        ones, zeros = np.ones_like(ids), np.zeros_like(ids)
        states = np.stack(bert.apply(ids, ones, zeros)["hidden_states"])[:, 0]
        count = len(feature.info)
        np.testing.assert_allclose(
            splits["dev"].vectors[:, word : word + count],
            states[:, feature.info],
            atol=1e-5,
        )
        word += count
        lengths.append(ids.shape[1])
    assert word == about["dev"]["words"] == splits["dev"].lengths.sum()
    assert (min(lengths) > 24) is context  # nearly full rows, or sentences alone
    tags = [tag for _, tags in SENTENCES for tag in tags.split()]
    assert [task.labels[index] for index in splits["dev"].labels] == tags


def taggers(task, splits, seeds, config=None):
    setting = feature_training.Setting(
        [0, 1], True, len(task.labels), 8, 0.1, seeds, 3, config or task.config
    )
    return feature_training.Taggers(setting, splits)


@pytest.mark.slow
def test_restarts_together_are_those_apart(opened, tmp_path):
    given, task, bert = opened()
    splits, _ = features.vectors(given, task, bert, ["train", "dev"])
    together = taggers(task, splits, [3, 4]).train(tmp_path / "a", "a")["epochs"]
    for place, seed in enumerate((3, 4)):
        alone = taggers(task, splits, [seed]).train(tmp_path / f"{seed}", "b")["epochs"]
        for ours, theirs in zip(together, alone, strict=True):
            for name in ("loss", "dev", "weights", "scale"):
                np.testing.assert_allclose(
                    ours[name][place], theirs[name][0], atol=1e-5, err_msg=name
                )
    losses = together[-1]["loss"]
    assert abs(losses[0] - losses[1]) > 1e-4  # they are two


def test_every_sentence_once_and_lengths_alike():
    lengths = np.random.default_rng(0).integers(1, 100, 77)
    orders = [feature_training.order(lengths, 8, epoch=1, seed=s) for s in range(3)]
    for batches in orders:
        rows = np.concatenate(batches)
        assert sorted(rows[rows >= 0]) == list(range(77))
    assert not np.array_equal(orders[0], orders[1])
    again = feature_training.order(lengths, 8, epoch=2, seed=0)
    assert not np.array_equal(orders[0], again)
    for same in zip(*orders, strict=True):
        sizes = {
            feature_training._padded(lengths[rows[rows >= 0]].max()) for rows in same
        }
        assert len(sizes) == 1


@pytest.mark.slow
def test_learns_what_was_planted(command, data, capsys):
    options = {"test": data / "test", "config.train.num_epochs": 40.0}
    assert features.main(command(choices="sum_all,last", **options)) == 0
    out = capsys.readouterr().out
    found = results(data / "out")["choices"]
    for name in ("sum_all", "last"):
        for split in ("dev", "test"):
            assert found[name][split]["restarts"] == [1.0, 1.0], out
    assert found["sum_all"]["weights"] == pytest.approx({"1": 1.0})
    assert "100.00 +- 0.00" in out and "95.5" in out
    assert "majority tag everywhere" in out


def test_a_second_start_uses_what_is_there(command, data, capsys, monkeypatch):
    assert features.main(command()) == 0
    first = capsys.readouterr()
    before = results(data / "out")

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(feature_cache, "_fill", refuse)
    monkeypatch.setattr(feature_training.Taggers, "train", refuse)
    assert features.main(command()) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert results(data / "out") == before
    assert "vectors of train: from the cache, " in second.err
    assert "last: trained before, " in second.err
    assert "second_to_last: left out; it needs 2 layers, not 1" in second.err


@pytest.mark.slow
@pytest.mark.parametrize("batches", [0, 1, 3])
def test_killed_while_computing_vectors(command, data, monkeypatch, batches):
    """The vectors' file is bit for bit that of an undisturbed run."""
    options = command(choices="last", **{"config.evaluate.batch_size": 4})
    assert features.main([*options, f"--output={data / 'whole'}"]) == 0
    monkeypatch.setattr(feature_cache, "SAVE_SECONDS", 0.0)
    note = feature_cache._note
    calls = []

    def dies(array, *rest):
        if len(calls) == batches:
            raise KeyboardInterrupt
        calls.append(rest)
        note(array, *rest)

    monkeypatch.setattr(feature_cache, "_note", dies)
    assert features.main(options) == 130
    monkeypatch.setattr(feature_cache, "_note", note)
    computed = []
    batch = feature_cache._batch
    monkeypatch.setattr(
        feature_cache, "_batch", lambda *a: computed.append(a) or batch(*a)
    )
    assert features.main(options) == 0
    # 20 rows of train and 5 of dev, 4 a batch
    assert len(computed) == 7 - batches
    ours, theirs = (
        {path.name: path.read_bytes() for path in (data / folder / "vectors").iterdir()
         if path.suffix != ".json"}
        for folder in ("out", "whole")
    )  # fmt: skip
    assert ours == theirs and len(ours) == 2
    same = [results(data / folder)["choices"] for folder in ("out", "whole")]
    assert same[0] == same[1]


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 4])
def test_killed_in_training(command, data, monkeypatch, step):
    assert features.main([*command(), f"--output={data / 'whole'}"]) == 0
    monkeypatch.setattr(feature_training, "SAVE_SECONDS", 0.0)
    save = feature_training.Taggers._save

    def dies(self, place, state, now, *rest):
        save(self, place, state, now, *rest)
        if now == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(feature_training.Taggers, "_save", dies)
    assert features.main(command()) == 130
    assert not (data / "out" / "results.json").exists()
    monkeypatch.setattr(feature_training.Taggers, "_save", save)
    assert features.main(command()) == 0
    choices = [results(data / folder)["choices"] for folder in ("out", "whole")]
    assert choices[0] == choices[1]
    left = {path.suffix for path in (data / "out" / "choices").iterdir()}
    assert left == {".json"}
    # Killed between the last two lines: the state of gigabytes goes at the next start.
    done = next((data / "out" / "choices").glob("last-*.json"))
    done.with_suffix(".npz").write_bytes(b"")
    assert features.main(command()) == 0
    assert not done.with_suffix(".npz").exists()


@pytest.mark.slow
def test_killed_as_a_process(command, data):
    options = command(**{"config.train.num_epochs": 200.0, "choices": "last"})
    process = start(*options, program=PROGRAM)
    state = data / "out" / "choices"
    wait_until(lambda: state.exists() and any(state.glob("*.npz")), process)
    kill(process)
    _, err = finish(start(*options, program=PROGRAM))
    assert "goes on after step" in err and "vectors of dev: from the cache" in err
    whole = [*options, f"--output={data / 'whole'}"]
    finish(start(*whole, program=PROGRAM))
    assert results(data / "out")["choices"] == results(data / "whole")["choices"]


def test_other_data_or_settings_are_not_mixed_up(command, data, capsys):
    def names(kind, **options):
        assert features.main(command(choices="last", **options)) == 0
        capsys.readouterr()
        return {path.name for path in (data / "out" / kind).iterdir()}

    first = names("choices")
    smaller = names("choices", size=4)
    assert len(smaller) == 2 and first < smaller
    vectors = names("vectors")
    (data / "dev").write_text(columns(SENTENCES[:4]))
    assert len(names("vectors") - vectors) == 2  # dev's, and its note
    # Other tags are other scores of the same vectors.
    (data / "dev").write_text(columns(SENTENCES[:4]).replace("B-Y", "B-X"))
    before = len(names("choices"))
    assert before == 4
    # So is the share of right tags, which is not these entities' F1.
    plain_tags = {"config.task.scheme": "none"}
    assert len(names("choices", **plain_tags)) == 5
    assert results(data / "out")["score"] == "accuracy"
    path = next((data / "out" / "vectors").glob("train-*.npy"))
    os.truncate(path, path.stat().st_size - 8)
    assert features.main(command(choices="last")) == 0
    assert "damaged; computing it again" in capsys.readouterr().err


def test_no_room_on_the_disk(command, data, capsys, monkeypatch):
    def full(_):
        return SimpleNamespace(f_bavail=1, f_frsize=512)

    monkeypatch.setattr(feature_cache.os, "statvfs", full)
    assert features.main(command()) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "need 0.00 GB, and 0.00 GB are free; take another --output" in line
    assert not list((data / "out" / "vectors").glob("*.part"))


def test_what_was_left_unfinished_of_other_settings(command, data, capsys):
    part = data / "out" / "vectors" / "train-0123456789abcdef.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"")
    assert features.main(command(choices="last")) == 0
    assert f"{part}: unfinished and of other settings; deleted" in (
        capsys.readouterr().err
    )
    assert not part.exists()


def test_errors(command, data, capsys):
    def error(*flags, **options):
        assert features.main([*command(**options), *flags]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        return line

    assert "missing: cannot be read" in error(dev=data / "missing")
    assert "nowhere" in error(init_from=data / "nowhere")
    assert "'first' is none of embeddings, " in error(choices="first")
    assert "last stands there twice" in error(choices="last,last")
    assert "needs 4 layers, and the model has 1" in error(choices="sum_last_four")
    (data / "words").write_text("the\nfox\n")
    assert "words:1: 1 column between spaces" in error(train=data / "words")
    (data / "empty").write_text("")
    assert "empty: the file is empty" in error(dev=data / "empty")
    (data / "empty").write_text("\n\n")
    assert "empty: has no sentence" in error(dev=data / "empty")
    assert "a local folder is required" in error(output="gs://bucket/out")
    assert "--seeds=0: must be at least 1" in error(seeds=0)
    assert "--size=-1: must be at least 1" in error(size=-1)
    assert "num_epochs=1.5: must be 1, 2, 3" in error(
        **{"config.train.num_epochs": 1.5}
    )
    assert "--seed=3: no such option" in error("--seed=3")
    assert "changes nothing here" in error("--config.task.bilstm=True")
    assert "no such field" in error("--config.optimizer.rate=3")
    assert "learning_rate=-1" in error("--config.optimizer.learning_rate=-1.0")
    assert not (data / "out").exists()
    assert "dev: not a folder" in error(output=data / "dev")
