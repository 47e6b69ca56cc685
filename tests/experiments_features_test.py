"""Feature-based tagging: vectors, restarts together, errors, scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_runs import SENTENCES, command_of, opened, results, write_data

from bert_jax.models.tagger import FeatureTagger
from experiments.paper import feature_training, features
from experiments.paper.feature_choices import CHOICES, chosen


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path)


@pytest.fixture
def command(data, plain):
    return command_of(data, plain)


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
def test_the_vectors_are_the_models(command, context):
    """Each word's vectors are `apply`'s at its first piece, of its own row."""
    given, task, bert = opened([*command(), *["--document_context"] * context])
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


def test_restarts_together_are_those_apart(command, tmp_path):
    given, task, bert = opened(command())
    splits, _ = features.vectors(given, task, bert, ["train", "dev"])
    together = taggers(task, splits, [3, 4]).train(tmp_path / "a", "a")["epochs"]
    alone = taggers(task, splits, [4]).train(tmp_path / "b", "b")["epochs"]
    for ours, theirs in zip(together, alone, strict=True):
        for name in ("loss", "dev", "weights", "scale"):
            np.testing.assert_allclose(
                ours[name][1], theirs[name][0], atol=1e-5, err_msg=name
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
    assert "a bucket; name a local place" in error(output="gs://bucket/out")
    assert "--seeds=0: must be from 1 to 10,000" in error(seeds=0)
    assert "--size=99999: must be from 1 to 10,000" in error(size=99999)
    assert "num_epochs=1.5: must be 1, 2, 3" in error(
        **{"config.train.num_epochs": 1.5}
    )
    assert "--seed=3: no such option" in error("--seed=3")
    assert "changes nothing here" in error("--config.task.bilstm=True")
    assert "no such field" in error("--config.optimizer.rate=3")
    assert "learning_rate=-1" in error("--config.optimizer.learning_rate=-1.0")
    assert not (data / "out").exists()
    assert "dev: not a folder" in error(output=data / "dev")
