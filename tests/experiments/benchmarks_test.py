"""The code that the benchmarks share, and small runs of each."""

import json
import time

import numpy as np
import pytest

from bert_jax.config.phases import phases_of
from bert_jax.data import masking
from experiments.speed import inference, our_step, sides, train_step
from tests import runs

TINY = ("--sizes=1/64", "--lengths=16", "--batch=2", "--rounds=1", "--turn=0")


def test_sides_take_turns():
    order: list[str] = []

    def side(name):
        def step(steps):
            order.append(name)
            time.sleep(0.01 * steps)
            return 0.0

        return step

    found = sides.time_in_turns({"a": side("a"), "b": side("b")}, rounds=3, least=0.0)
    # Two to learn the pace, then two a turn, of which the second counts.
    assert order == ["a", "b", *"aabb", *"bbaa", *"aabb"]
    assert found["a"]["best"] == min(found["a"]["turns"]) >= 0.01
    assert len(found["b"]["turns"]) == 3


def test_process_fails_or_times_out(tmp_path):
    start = "import subprocess, sys\n\ndef prepare_sides(case):\n    "
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


def test_torch_labels_stand_at_the_predicted_positions():
    pytest.importorskip("torch", reason="needs the parity extra")
    from experiments.speed import torch_step

    batch = our_step.random_batch(our_step.sized_config("2/128", 16, 3))
    batch["masked_lm_weights"][1, 1] = 0.0
    found = torch_step.to_torch_batch(batch)
    assert (found["labels"] != torch_step.IGNORED).sum() == 3 * 2 - 1
    at = np.take_along_axis(found["labels"], batch["masked_lm_positions"], axis=1)
    np.testing.assert_array_equal(at, found["chosen"])
    assert found["chosen"][1, 1] == torch_step.IGNORED


def test_packed_batch_has_the_shapes_of_training():
    config = our_step.sized_config("1/64", 32, 8)
    config.corpus.packing = True
    batch = our_step.random_batch(config)
    shapes = masking.batch_shapes(config, phases_of(config)[0])
    assert {name: rows.shape for name, rows in batch.items()} == shapes
    assert (batch["sequence_ids"] == np.repeat([1, 2], 16)).all()


def test_small_run_of_the_training_step(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="needs the parity extra")
    runs.one_device_each(monkeypatch)
    output = tmp_path / "found.json"
    given = [*TINY, "--dtypes=float32", "--attentions=einsum,fused"]
    train_step.main([*given, "--torch=sdpa-gathered", f"--output={output}"])
    told = capsys.readouterr().out
    found = json.loads(output.read_text())
    (case,) = found["cases"]
    assert found["command"].startswith(f"python -m {train_step.MODULE} --sizes=1/64")
    assert list(case["sides"]) == ["ours, einsum", "torch, sdpa-gathered"]
    assert list(case["not_run"]) == ["ours, fused"]
    assert all(name in told for name in (*case["sides"], *case["not_run"]))


TEXTS = ("a quick brown fox", "seven cats watch the lazy dog go home", "no")


def test_sides_of_prediction_give_the_same_labels(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="needs the parity extra")
    runs.one_device_each(monkeypatch)
    vocabulary = runs.ROOT / "bert_jax" / "weights" / "mini" / "vocab.txt"
    rows, output = tmp_path / "rows.jsonl", tmp_path / "found.json"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    size = ["--layers=1", "--hidden=64", "--rows=3", "--rounds=1", "--turn=0"]
    given = [f"--vocabulary={vocabulary}", "--texts", str(rows)]
    assert inference.main([*given, *size, f"--output={output}"]) == 0
    found = json.loads(output.read_text())
    assert found["same_label"] == 1.0
    assert {"predict", "pipeline", "pipeline, one text"} <= set(found["sides"])
