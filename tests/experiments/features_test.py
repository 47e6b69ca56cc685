"""Feature-based tagging: vectors, restarts together, errors, scores."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stand_ins

from bert_jax import tasks
from bert_jax.config import configuration
from experiments.paper import feature_task, features
from experiments.paper.feature_choices import CHOICES
from experiments.paper.feature_task import FeatureTagger

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


def read(arguments):
    """Reads the inputs of a command, as before it computes."""
    return features.read(*features.parse(arguments))


def vectors(data):
    """Returns each split's vectors, computed where they are missing."""
    features.keep_vectors(data)
    return {split: np.load(path) for split, path in data.paths.items()}


@pytest.mark.parametrize("name", CHOICES)
def test_choice_in_numpy(name):
    """The BiLSTM's input for each of the six, against sums written out."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(13, 2, 3, 4)).astype(np.float32)  # states, batch, words
    choice = CHOICES[name]
    model = FeatureTagger(labels=2, size=3, mixes=choice.mixes)
    given = jnp.asarray(np.moveaxis(hidden[choice.states(12)], 0, 2))
    mask = jnp.ones((2, 3), jnp.int32)
    params = model.init(jax.random.key(0), given, mask)["params"]
    if choice.mixes:
        raw = rng.normal(size=given.shape[2]).astype(np.float32)
        params["mix"] = {"weights": jnp.asarray(raw), "gamma": jnp.float32(1.5)}
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
    # Without a sum the BiLSTM reads them as they are, concatenated.
    width = params["bilstm"]["kernel_0"].value.shape[1]
    np.testing.assert_array_equal(given.reshape(2, 3, -1), inputs)
    assert width == inputs.shape[-1]


def mean(states, raw):
    weights = np.exp(raw) / np.exp(raw).sum()
    return 1.5 * sum(
        weight * state for weight, state in zip(weights, states, strict=True)
    )


def test_vectors_are_the_models(command):
    """Each word's vectors are `apply`'s at its first token, in the word's row."""
    data = read([*command(), "--document_context"])
    array, bert, word = vectors(data)["dev"], data.bert, 0
    for feature in data.task.encode_examples("dev"):
        ids = np.asarray(feature.columns["input_ids"])[None]
        ones, zeros = np.ones_like(ids), np.zeros_like(ids)
        states = np.stack(bert.apply(ids, ones, zeros)["hidden_states"])[:, 0]
        count = len(feature.info)
        np.testing.assert_allclose(
            array[:, word : word + count],
            states[:, feature.info],
            atol=1e-5,
        )
        word += count
        assert ids.shape[1] > 24  # nearly full rows
    assert word == array.shape[1] == sum(map(len, data.readings["dev"].firsts))


def task_of(data, **fields):
    """The task of a run on a command's vectors."""
    given = {"choice": "sum_all"} | fields
    for split, path in data.paths.items():
        given[f"{split}_vectors"] = path
        given[f"{split}_file"] = data.task.config.task[f"{split}_file"]
    overrides = [f"--config.task.{name}={value}" for name, value in given.items()]
    batch = "--config.train.batch_size=8"
    spec = f"{feature_task.__file__}:size=8"
    task = tasks.create_task(configuration.load_config(spec, [*overrides, batch]))
    task.resolve()
    return task


def test_batch_has_its_words_vectors_and_tags(command):
    """Also the weights of two epochs: each word twice."""
    data = read(command())
    array, task, words = vectors(data)["train"], task_of(data), 0.0
    examples = task.examples("train")
    ends = np.cumsum([len(x["words"]) for x in examples])
    for batch in itertools.islice(task.batches(0, slice(None), 5), 5):
        for row in np.flatnonzero(batch["row_weights"]):
            mask = batch["input_mask"][row] == 1
            numbers = batch["input_ids"][row, mask]
            (place,) = np.flatnonzero(ends == numbers[-1] + 1)
            expected = np.moveaxis(array[1:, numbers], 0, 1)
            np.testing.assert_array_equal(batch["vectors"][row, mask], expected)
            assert not batch["vectors"][row, ~mask].any()
            labels = [task.labels[label] for label in batch["labels"][row, mask]]
            assert labels == list(examples[place]["tags"])
        weights = task.loss_weights(jax.tree.map(jnp.asarray, batch))
        words += float(weights["tagging_loss"])
    assert words == 2 * ends[-1] == 2 * array.shape[1]


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


def test_features_of_other_data_are_not_mixed_up(command, data):
    """Which runs and files of vectors there would be."""

    def names(**more):
        options, fields = features.parse(command(choices="last", **more))
        kept = features.read(options, fields)
        (run,) = features.plan(options, fields, kept).values()
        return run.folder.name, {split: x.name for split, x in kept.paths.items()}

    first, vectors_of = names()
    assert names() == (first, vectors_of)
    other, same = names(size=4)
    assert other != first and same == vectors_of
    (data / "dev").write_text(columns(SENTENCES[:4]))
    fewer, of_fewer = names()
    assert fewer != first and of_fewer["train"] == vectors_of["train"]
    assert of_fewer["dev"] != vectors_of["dev"]
    # Other tags are other scores of the same vectors.
    (data / "dev").write_text(columns(SENTENCES[:4]).replace("B-Y", "B-X"))
    other, same = names()
    assert other not in (first, fewer) and same == of_fewer
