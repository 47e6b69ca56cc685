"""Learning curves: subsets, classifiers on frozen vectors, runs, the report."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import stand_ins

import bert_jax
from bert_jax.errors import UserError
from experiments.claims import learning_curves as curves

WORDS = ("quick fox jumps over", "lazy dog", "seven cats watch it go", "the brown dog")


@pytest.fixture
def data(tmp_path):
    """Twenty reviews to train with and eight to test with, of two classes."""
    folder = tmp_path / "imdb"
    folder.mkdir()
    for split, count in (("train", 20), ("test", 8)):
        rows = [
            {"text": f"{WORDS[i % 4]} {'a' * (i // 4 % 4)}", "label": i % 2}
            for i in range(count)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text)
    return folder


def test_nested_order_is_stratified_at_every_beginning():
    seed, labels = 0, [*"a" * 30, *"b" * 60, *"c" * 10]
    order = curves.nested(labels, seed)
    assert sorted(order) == list(range(100))
    for count in range(1, 101):
        chosen = [labels[index] for index in order[:count]]
        for label, share in (("a", 0.3), ("b", 0.6), ("c", 0.1)):
            assert abs(chosen.count(label) - share * count) <= 1
    assert order.tolist() == curves.nested(labels, seed).tolist()
    assert order.tolist() != curves.nested(labels, seed + 1).tolist()


def test_sizes():
    assert curves.sizes("8,4,all", 20) == [4, 8, 20]
    for wrong in ("4,21", "1", "", "x", "-4", "4.5"):
        with pytest.raises(UserError, match="--examples"):
            curves.sizes(wrong, 20)


def test_learning_curves(data, plain, left_to_right, tmp_path, monkeypatch, capfd):
    """Trained, judged and drawn. A second start runs nothing."""
    pytest.importorskip("matplotlib", reason="needs the report extra")
    started = stand_ins.run_here(monkeypatch)
    output = tmp_path / "out"
    given = (f"--data={data}", f"--init_from={plain}", f"--ltr={left_to_right}")
    few = ("--size=tiny", "--examples=8", "--draws=1", "--seeds=2", "--epochs=2")
    fields = {
        "task.max_seq_length": 16,
        "task.pad_to_max": True,
        "train.batch_size": 8,
        "model.hidden_dropout_prob": 0.0,
        "model.attention_probs_dropout_prob": 0.0,
    }
    small = [f"--config.{name}={value}" for name, value in fields.items()]
    command = [*given, *few, *small, f"--output={output}"]
    assert curves.main(command) == 0, capfd.readouterr().err
    out, _ = capfd.readouterr()
    assert len(started) == 2
    found = json.loads((output / "results.json").read_text())
    of = {run["system"]: run["epochs"] for run in found["runs"]}
    assert {*of} == {*curves.SYSTEMS}
    for name in (curves.FINE, curves.LTR):
        assert [line["step"] for line in of[name]] == [1, 2]
        assert all(0 <= line["test_accuracy"] <= 1 for line in of[name])
    words = {c["claim"]: c["verdict"] for c in found["claims"]}
    assert words["Masked LM is better than left to right"] == "undecided"  # one draw
    (chosen,) = (output / "data").glob("*-draw0-8.jsonl")
    rows = [json.loads(line) for line in chosen.open()]
    assert sorted(row["label"] for row in rows) == [*"0000", *"1111"]
    assert "examples.png" in (output / "report.md").read_text()
    assert curves.main(command) == 0
    again, _ = capfd.readouterr()
    assert len(started) == 2
    table = out[out.index("Test accuracy") :]
    assert again[again.index("Test accuracy") :] == table


def test_vectors_are_the_models(plain, data):
    """[CLS] of the last layer and the tokens' mean in the one before."""
    given = SimpleNamespace(data=str(data), examples="4,20", draws=1)
    reviews = curves.read(given)
    bert = bert_jax.load(plain)
    row = [reviews.test[3]["text"]]
    kinds = (("cls", 1), ("mean", 0))  # a single layer
    read = {
        unit: curves.read_vectors(bert, unit, row, (layer,)) for unit, layer in kinds
    }
    ids = np.array([bert.tokenizer.encode(reviews.test[3]["text"]).ids])
    states = bert.apply(ids, np.ones_like(ids), np.zeros_like(ids))["hidden_states"]
    np.testing.assert_allclose(read["cls"][0][0, 0], states[-1][0, 0], atol=1e-5)
    mean = np.mean(states[-2][0, 1:-1], axis=0)
    np.testing.assert_allclose(read["mean"][0][0, 0], mean, atol=1e-5)


def test_penalty_fits_the_data():
    """Noise gets a large one, and classes that a line parts a small one."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 30)), np.arange(40) % 2
    noise = curves.classified((x, y), (x, y), seed=0)
    assert noise["penalty"] >= 1
    x[:, 0] += 20 * y
    parted = curves.classified((x, y), (x + 0.1, y), seed=0)
    assert parted["penalty"] < 0.1 and parted["test_accuracy"] == 1.0
    four = curves.classified((x[:4], y[:4]), (x, y), seed=0)
    assert four["train_accuracy"] == 1.0
