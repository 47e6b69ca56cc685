"""Word embeddings that are counted on the training text."""

import json

import numpy as np
import pytest
import runs
from array_record.python.array_record_data_source import ArrayRecordDataSource

import bert_jax
from bert_jax.data import prepare, records
from bert_jax.runtime import storage
from bert_jax.workdir import metrics
from experiments.english import counted


def some_pairs(random, number=30, pieces=9):
    lengths = random.integers(0, 12, (number, 2))
    tokens = random.integers(0, pieces, lengths.sum()).astype(np.int32)
    return records.Pairs(tokens, lengths, np.zeros(number, bool))


def counted_slowly(pairs, pieces):
    found, begin = np.zeros((pieces, pieces)), 0
    for length in pairs.lengths.ravel():
        part = pairs.tokens[begin : begin + length]
        begin += length
        for one in range(length):
            for other in range(length):
                if 0 < abs(one - other) <= 5:
                    found[part[one], part[other]] += 1 / abs(one - other)
    return found


def test_counts_are_those_of_a_loop():
    random = np.random.default_rng(0)
    batches = [some_pairs(random) for _ in range(3)]
    expected = sum(counted_slowly(pairs, 9) for pairs in batches)
    np.testing.assert_allclose(counted.near(batches, 9).toarray(), expected)


def test_information_is_that_of_the_formula():
    counts = counted.near([some_pairs(np.random.default_rng(1), 8)], 9)
    dense = counts.toarray()
    joint = dense / dense.sum()
    smoothed = dense.sum(0) ** 0.75
    with np.errstate(divide="ignore"):
        pmi = np.log(joint / np.outer(joint.sum(1), smoothed / smoothed.sum()))
    found = counted.information(counts)
    np.testing.assert_allclose(found.toarray(), np.maximum(pmi, 0), atol=1e-12)
    assert (found.data > 0).all()


def test_factors_are_those_of_numpy():
    counts = counted.near([some_pairs(np.random.default_rng(2), 60, 20)], 25)
    matrix = counted.information(counts)
    seen, found = counted.factors(matrix, 6)
    assert seen.sum() == 20 and found.shape == (20, 6)
    left, values, _ = np.linalg.svd(matrix.toarray())
    expected = (left * values**0.5)[:20, :6]
    expected -= expected.mean(0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9)
    again = counted.factors(matrix, 6)[1]
    np.testing.assert_array_equal(found, again)


# The corpus has nine words.
SMALL = ("--config.model.hidden_size=8", "--config.model.num_attention_heads=2")


@pytest.fixture(scope="module")
def start(micro, tmp_path_factory):
    """The folder, and what the script printed."""
    folder = tmp_path_factory.mktemp("counted") / "start"
    data = f"--config.corpus.data_dir={folder.parent / 'data'}"
    text = counted.run([f"--config={micro}", f"--output={folder}", data, *SMALL])
    return folder, text, data


def test_a_run_starts_from_it(start, micro, tmp_path):
    folder, text, data = start
    bert = bert_jax.load(str(folder))
    config = bert.config
    table = np.array(bert.params["bert"]["embeddings"]["word_embeddings"]["embedding"])
    data_folder = next((folder.parent / "data").glob("pairs-*"))
    counts = prepare.open_folder(storage.path(data_folder)).token_counts()
    lengths = np.linalg.norm(table, axis=1)
    length = config.initializer_range * config.hidden_size**0.5
    seen = np.abs(lengths / length - 1) < 1e-5
    assert 0 < seen.sum() < len(table)
    assert (counts[seen[: len(counts)]] > 0).all()
    assert text.startswith(f"{folder}: {seen.sum()} of {len(table)} word embeddings")
    often = np.argsort(bert.params["masked_lm"]["bias"])[::-1]
    assert counts[often[0]] == counts.max()

    workdir = tmp_path / "run"
    given = (f"--config.init_from={folder}", "--config.train.num_steps=1", data, *SMALL)
    runs.run(micro, workdir, *given)
    (line,) = metrics.read(workdir, "train")
    unigrams = (
        -(counts * np.log((counts + 1) / (counts + 1).sum())).sum() / counts.sum()
    )
    assert line["masked_lm_loss"] == pytest.approx(unigrams, abs=0.5)
    recorded = json.loads((folder / "config.json").read_text())["bert_jax"]
    assert recorded["config"]["seed"] == 0 and "versions" in recorded["counted"]


def test_all_training_pairs_of_the_longest_rows_count(micro, tmp_path, monkeypatch):
    kept = []
    near = counted.near
    monkeypatch.setattr(counted, "near", lambda *a: kept.append(near(*a)) or kept[-1])
    monkeypatch.setattr(counted, "_RECORDS", 50)
    two_phases = ("--config.phase2.fraction=0.5", "--config.phase2.max_seq_length=64",
                  "--config.model.max_position_embeddings=64")  # fmt: skip
    data = f"--config.corpus.data_dir={tmp_path / 'data'}"
    given = [f"--config={micro}", f"--output={tmp_path / 'out'}", data, *SMALL]
    counted.run([*given, *two_phases])
    (folder,) = tmp_path.glob("data/pairs-*")
    files = sorted(map(str, folder.glob("*train.array_record*")))
    source = ArrayRecordDataSource(files)
    rows = [records.parse([source[place]]) for place in range(len(source))]
    assert len(rows) > 50 and max(pair.lengths.sum() for pair in rows) > 32
    expected = sum(counted_slowly(pair, 64) for pair in rows)
    np.testing.assert_allclose(kept[0].toarray(), expected)


def test_spare_rows_have_no_probability(start, micro, tmp_path):
    counted.run([f"--config={micro}", f"--output={tmp_path / 'out'}", start[2], *SMALL,
                 "--config.model.vocab_size=128"])  # fmt: skip
    bias = bert_jax.load(str(tmp_path / "out")).params["masked_lm"]["bias"]
    assert len(bias) == 128
    assert np.log(np.exp(bias).sum()) == pytest.approx(0, abs=0.05)


def test_it_is_the_same_again(start, micro, tmp_path):
    folder, _, data = start
    counted.run([f"--config={micro}", f"--output={tmp_path / 'again'}", data, *SMALL])
    one, other = (f / "model.safetensors" for f in (folder, tmp_path / "again"))
    assert one.read_bytes() == other.read_bytes()
    counted.run([f"--config={micro}", f"--output={tmp_path / 'seed'}", data,
                 *SMALL, "--config.seed=1"])  # fmt: skip
    assert one.read_bytes() != (tmp_path / "seed/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config=configs/finetune/glue.py"], "a BERT's pre-training is required"),
        (["--config=configs/gpt.py"], "a BERT's pre-training is required"),
        (["--config=nowhere.py"], "nowhere.py"),
        (["--config.model.nothing=1"], "no such field"),
        (["--config.task.objective=ltr"], "a BERT's pre-training is required"),
        (["--config.init_from=pretrained/mini"], "these weights start anew"),
        (["--config.model.vocab_size=40"], "the tokenizer has 64 pieces"),
        (["--config.train.num_steps=0"], "config.train.num_steps=0"),
        (["--widow=3"], "--widow=3: no such option"),
        (["--output=gs://bucket/out"], "a local folder is required"),
        (["--config.model.hidden_size=512"], "too few for vectors of 512"),
    ],
)
def test_errors(start, micro, tmp_path, capsys, arguments, said):
    given = [f"--config={micro}", f"--output={tmp_path / 'out'}", start[2], *arguments]
    assert counted.main(given) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and said in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
