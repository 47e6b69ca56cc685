"""The code that the benchmarks share, and small runs of each."""

import json
import time

import numpy as np
import pytest
import runs

from bert_jax.errors import UserError
from experiments.speed import our_step, sides, train_step

TINY = ("--sizes=1/64", "--lengths=16", "--batch=2", "--rounds=1", "--turn=0")


def test_sides_take_turns():
    order: list[str] = []

    def side(name):
        def step(steps):
            order.append(name)
            time.sleep(0.01 * steps)
            return 0.0

        return step

    found = sides.alternate({"a": side("a"), "b": side("b")}, rounds=3, least=0.0)
    # Two to learn the pace, then two a turn, of which the second counts.
    assert order == ["a", "b", *"aabb", *"bbaa", *"aabb"]
    assert found["a"]["best"] == min(found["a"]["turns"]) >= 0.01
    assert len(found["b"]["turns"]) == 3


def test_process_fails_or_times_out(tmp_path):
    start = "import subprocess, sys\n\ndef prepare(case):\n    "
    (tmp_path / "failing.py").write_text(f"{start}raise SystemExit('no memory')")
    # Its child holds the output open: both must end.
    (tmp_path / "waiting.py").write_text(
        f"{start}subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    )
    (tmp_path / "working.py").write_text(
        f"{start}print('noise')\n"
        "    return {'add': lambda times: times + case['a']}, {'found': case['a']}"
    )
    more = {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(RuntimeError, match="no memory"):
        sides.Process("failing", {}, 60, more).__enter__()
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="killed after 0 s"):
        sides.Process("waiting", {}, 0.5, more).__enter__()
    assert time.monotonic() - start < 30
    with sides.Process("working", {"a": 1}, 60, more) as process:
        assert (process.found, process.sides) == ({"found": 1}, ["add"])
        assert process.ask("add", 2)["value"] == 3


@pytest.mark.parametrize(("length", "chosen"), [(16, 2), (128, 20), (512, 77)])
def test_random_batch_is_full(length, chosen):
    config = our_step.sized_config("2/128", length, 4)
    batch = our_step.random_batch(config)
    assert batch["input_ids"].shape == (4, length)
    assert batch["input_ids"].min() >= our_step.FIRST_PIECE
    assert batch["input_ids"].max() < config.model.vocab_size
    assert batch["input_mask"].all()
    positions = batch["masked_lm_positions"]
    assert positions.shape == (4, chosen)
    assert (np.diff(positions, axis=1) > 0).all() and positions.min() > 0
    assert {name: rows.dtype.name for name, rows in batch.items()} == dict.fromkeys(
        batch, "int32"
    ) | {"masked_lm_weights": "float32"}


def test_classifier_predicts_no_positions():
    (first, *_) = train_step.cases(train_step.parse(["--task=classification"]))
    assert first["torch"] == ["sdpa", "eager", "compile"]
    with pytest.raises(UserError, match="--torch: a classifier has no predictions"):
        train_step.parse(["--task=classification", "--torch=sdpa-gathered"])
    config = our_step.sized_config("2/128", 16, 4, task="classification")
    batch = our_step.random_batch(config)
    assert set(batch["label"]) <= {0, 1} and batch["label"].shape == (4,)
    # A layer's four products of vectors, two of the intermediate layer's, and the
    # scores' two: forward, and twice that backward.
    layer = 16 * (4 * 128 * 128 + 2 * 128 * 512) + 2 * 16 * 16 * 128
    assert our_step.flops(config) == 4 * 3 * 2 * 2 * layer


def test_torch_labels_stand_at_the_predicted_positions():
    pytest.importorskip("torch", reason="needs the parity extra")
    from experiments.speed import torch_step

    batch = our_step.random_batch(our_step.sized_config("2/128", 16, 3))
    batch["masked_lm_weights"][1, 1] = 0.0
    found = torch_step.theirs(batch)
    assert (found["labels"] != torch_step.IGNORED).sum() == 3 * 2 - 1
    at = np.take_along_axis(found["labels"], batch["masked_lm_positions"], axis=1)
    np.testing.assert_array_equal(at, found["chosen"])
    assert found["chosen"][1, 1] == torch_step.IGNORED


def test_train_step_without_any_side_says_why(monkeypatch, capsys):
    runs.one_device_each(monkeypatch)
    given = [*TINY, "--dtypes=float32", "--attentions=cudnn", "--torch="]
    assert train_step.main(given) == 1
    assert "no result: config.model.attention=cudnn: needs a GPU" in (
        capsys.readouterr().out
    )


def test_small_run_of_the_training_step(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="needs the parity extra")
    runs.one_device_each(monkeypatch)
    output = tmp_path / "found.json"
    given = [*TINY, "--dtypes=float32", "--attentions=einsum,cudnn"]
    train_step.main([*given, "--torch=sdpa-gathered", f"--output={output}"])
    told = capsys.readouterr().out
    found = json.loads(output.read_text())
    (case,) = found["cases"]
    assert found["command"].startswith(f"python -m {train_step.MODULE} --sizes=1/64")
    assert list(case["sides"]) == ["ours, einsum", "torch, sdpa-gathered"]
    assert list(case["not_run"]) == ["ours, cudnn"]
    assert all(name in told for name in (*case["sides"], *case["not_run"]))
