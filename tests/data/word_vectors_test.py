"""Word vectors that are counted on the training text, and runs that start from them."""

import jax
import numpy as np
import pytest
import runs
from preparing import prepared as prepare
from preparing import read

import bert_jax
from bert_jax.config import configuration
from bert_jax.data import word_vectors
from bert_jax.workdir import metrics
from tests.close import assert_close

COUNTED = (
    "--config.task.word_initializer=counted",
    "--config.model.hidden_size=8",  # the corpus has fifteen words
    "--config.model.num_attention_heads=2",
)
STILL = ("--config.optimizer.learning_rate=0", "--config.train.num_steps=1")


def counted_slowly(pairs, pieces):
    """Counts every token with every token, by four loops."""
    found = np.zeros((pieces, pieces))
    for part in (part for pair in pairs for part in pair[:2]):
        for one in range(len(part)):
            for other in range(len(part)):
                if 0 < abs(one - other) <= 5:
                    found[part[one], part[other]] += 1 / abs(one - other)
    return found


@pytest.fixture(scope="module")
def data(micro):
    """The prepared pairs, and the numbers of a loop."""
    prepared = prepare(configuration.load_config(micro, []))
    pairs = read(prepared.folder, "train")
    return prepared, counted_slowly(pairs, len(prepared.token_counts()))


@pytest.mark.parametrize("at_a_time", [50, 16_384])
def test_counts_are_those_of_a_loop(data, monkeypatch, at_a_time):
    monkeypatch.setattr(word_vectors, "_RECORDS", at_a_time)
    prepared, expected = data
    contexts = np.argsort(-prepared.token_counts())[[7, 2, 4]]
    found = word_vectors.count_cooccurrences(prepared, contexts)
    assert expected[:, contexts].sum() > 100
    np.testing.assert_allclose(found, expected[:, contexts], rtol=1e-12)


def test_information_is_that_of_the_formula(data):
    counts = data[1][:, np.flatnonzero(data[1].sum(axis=0))]
    joint = counts / counts.sum()
    smoothed = counts.sum(0) ** 0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        pmi = np.log(joint / np.outer(joint.sum(1), smoothed / smoothed.sum()))
    expected = np.where(np.isnan(pmi), 0, np.maximum(pmi, 0))
    found = word_vectors.positive_pmi(counts)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert (found > 0).any() and (found == 0).any()


def test_factors_are_those_of_numpy():
    values = np.maximum(np.random.default_rng(0).normal(size=(40, 25)), 0)
    left, sizes, _ = np.linalg.svd(values, full_matrices=False)
    expected = (left * sizes**0.5)[:, :6]
    expected -= expected.mean(0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = word_vectors.singular_vectors(values, 6)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9)
    np.testing.assert_array_equal(found, word_vectors.singular_vectors(values, 6))


@pytest.fixture(scope="module")
def start(micro, tmp_path_factory):
    """A config, and the parameters before the first step (its rate is 0)."""
    folder = tmp_path_factory.mktemp("counted")
    own = (*COUNTED, f"--config.corpus.data_dir={folder / 'data'}")
    runs.run(micro, folder / "run", *own, *STILL)
    return own, bert_jax.load(str(folder / "run")), folder


@pytest.mark.slow
def test_run_starts_from_counted_vectors(start):
    _, bert, folder = start
    (vectors,) = (np.load(path) for path in folder.glob("data/pairs-*/word_vectors*"))
    table = bert.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    seen = vectors.any(axis=1)
    assert 8 < seen.sum() < len(table)
    length = bert.config.initializer_range * 8**0.5
    assert_close(table[seen], length * vectors[seen])
    random = np.linalg.norm(table[~seen], axis=1)
    assert (random > 0).all() and random.std() > 1e-3  # drawn as ever
    (line,) = metrics.read_metrics(folder / "run", "train")
    (dev,) = metrics.read_metrics(folder / "run", "dev")
    assert line["masked_lm_loss"] == pytest.approx(dev["unigram_loss"], abs=0.5)
    bias = bert.params["masked_lm"]["bias"]
    assert np.log(np.exp(bias).sum()) == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
def test_word_vectors_overwrite_no_other_weights(start, micro, plain, tmp_path):
    own = (*start[0][:1], f"--config.init_from={plain}")
    runs.run(micro, tmp_path / "run", *own, *STILL)
    theirs, ours = bert_jax.load(str(plain)), bert_jax.load(str(tmp_path / "run"))
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)
