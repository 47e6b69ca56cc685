"""Learning curves: subsets, classifiers on frozen vectors, runs, the report."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import stand_ins
from runs import run as run_main
from runs import taken

import bert_jax
from bert_jax.errors import UserError
from experiments.claims import learning_curves as curves
from experiments.lib import runner

WORDS = ("quick fox jumps over", "lazy dog", "seven cats watch it go", "the brown dog")


def main_run(arguments):
    """In the place of bert_jax.main: notes that it ran, and leaves what a run leaves.

    Of the two epochs' scores the last depends on system, number of examples and seed.
    """
    given = stand_ins.options(arguments)
    folder = Path(given["workdir"])
    output = folder.parents[1]
    with (output / "ran.txt").open("a") as file:
        print(folder.relative_to(output), file=file)
    if os.environ.get("BREAK", "none") in str(folder):
        print("error: it is broken")
        sys.exit(int(os.environ["BREAK_STATUS"]))
    train = Path(given["config.task.train_file"]).read_text().splitlines()
    count, first = int(given["config.train.seeds"]), int(given["config.seed"])
    folders = [folder / f"seed_{first + s}" for s in range(count)]
    for each in {folder, *(folders if count > 1 else [])}:
        each.mkdir(parents=True, exist_ok=True)
        last = 2 * len(train) // 4
        stand_ins.write_config(each, last, count if each == folder else 1)
        seed = int(each.name[5:]) if each.name.startswith("seed_") else first
        score = 0.5 + len(train) / 100 + seed / 1000 - 0.1 * ("left" in str(folder))
        lines = [
            {"step": epoch * len(train) // 4, "split": "dev", "time": 0,
             "accuracy": score - (2 - epoch) / 10}
            for epoch in (1, 2)
        ]  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (each / "metrics.jsonl").write_text(text)


def write_reviews(folder):
    """Twenty reviews to train with and eight to test with, of two classes."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 20), ("test", 8)):
        rows = [
            {"text": f"{WORDS[i % 4]} {'a' * (i // 4 % 4)}", "label": i % 2}
            for i in range(count)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text)
    return folder


@pytest.fixture
def data(tmp_path):
    return write_reviews(tmp_path / "imdb")


@pytest.fixture(scope="module")
def reading(micro, tmp_path_factory):
    """A left to right model's work directory, of one step."""
    folder = tmp_path_factory.mktemp("ltr") / "run"
    few = ("--config.train.num_steps=2", "--config.train.log_every=1")
    run_main(micro, folder, "--config.task.objective=ltr", *few)
    return folder


@pytest.fixture
def command(data, plain, tmp_path, monkeypatch, capfd):
    """Runs the command with the fake. Returns status, runs, stdout and stderr."""
    pytest.importorskip("matplotlib", reason="needs the report extra")
    stand_ins.put(monkeypatch, main=main_run)
    monkeypatch.setattr(runner, "MAIN", ("main",))
    output = tmp_path / "out"

    def run(*args):
        given = [f"--data={data}", f"--init_from={plain}", f"--output={output}"]
        small = ("--size=tiny", "--examples=4,all", "--draws=2")
        length = "--config.task.max_seq_length=16"
        status = curves.main([*given, *small, length, *args])
        ran = taken(output / "ran.txt")
        return status, ran, *capfd.readouterr()

    run.output = output
    return run


@pytest.mark.parametrize("seed", range(3))
def test_nested_order_is_stratified_at_every_beginning(seed):
    labels = [*"a" * 30, *"b" * 60, *"c" * 10]
    order = curves.nested(labels, seed)
    assert sorted(order) == list(range(100))
    for count in range(1, 101):
        chosen = [labels[index] for index in order[:count]]
        for label, share in (("a", 0.3), ("b", 0.6), ("c", 0.1)):
            assert abs(chosen.count(label) - share * count) <= 1
    assert order.tolist() == curves.nested(labels, seed).tolist()
    assert order.tolist() != curves.nested(labels, seed + 1).tolist()
    # Not the first of each class: any example may be in a small set.
    firsts = {curves.nested(labels, s)[0] for s in range(40)}
    assert len(firsts) > 10


def test_sizes():
    assert curves.sizes("8,4,all", 20) == [4, 8, 20]
    for wrong in ("4,21", "1", "", "x", "-4", "4.5"):
        with pytest.raises(UserError, match="--examples"):
            curves.sizes(wrong, 20)


def test_runs_report_and_second_start(command, reading):
    args = (f"--ltr={reading}", "--seeds=2")
    status, ran, out, err = command(*args)
    assert status == 0, err
    assert len(ran) == 2 * 2 * 2  # systems, numbers of examples, draws
    output = command.output
    found = json.loads((output / "results.json").read_text())
    assert len(found["runs"]) == 4 * 2 * 2
    of = {(r["system"], r["examples"], r["draw"]): r["epochs"] for r in found["runs"]}
    last = of[curves.FINE, 20, 1][-1]
    # The mean of seeds 2 and 3, which the second draw has.
    assert last["test_accuracy"] == pytest.approx(0.7 + 0.0025)
    assert [line["step"] for line in of[curves.LTR, 4, 0]] == [1, 2]
    words = {c["claim"]: c["verdict"] for c in found["claims"]}
    assert words["Masked LM is better than left to right"] == "undecided"
    assert "all seeds differ by the same" in out
    assert (output / "examples.png").read_bytes().startswith(b"\x89PNG")
    lines = (output / "data").glob("*-draw1-4.jsonl")
    rows = [json.loads(line) for path in lines for line in path.open()]
    assert sorted(row["label"] for row in rows) == ["0", "0", "1", "1"]
    # Again: nothing runs.
    status, ran, again, _ = command(*args)
    assert (status, ran) == (0, [])
    table = out[out.index("Test accuracy") :]
    assert again[again.index("Test accuracy") :] == table
    assert "examples.png" in (output / "report.md").read_text()


def test_learning_curves_of_real_runs(data, plain, tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="needs the report extra")
    few = ("--size=tiny", "--examples=8", "--draws=1", "--seeds=2", "--epochs=2")
    fields = ("--config.task.max_seq_length=16", "--config.train.batch_size=8")
    output = tmp_path / "out"
    given = (f"--data={data}", f"--init_from={plain}", f"--output={output}")
    assert curves.main([*given, *few, *fields]) == 0, capfd.readouterr().err
    found = json.loads((output / "results.json").read_text())["runs"]
    (lines,) = [r["epochs"] for r in found if r["system"] == curves.FINE]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(0 <= line["test_accuracy"] <= 1 for line in lines)


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
