"""What the benchmarks share, and small runs of each."""

import importlib.util
import json
import time

import jax
import numpy as np
import pytest
import runs

from bert_jax.errors import UserError
from experiments.lib import report
from experiments.speed import (
    gpu,
    measuring,
    our_step,
    train_sides,
    train_step,
)


def test_sides_take_turns():
    order: list[str] = []

    def side(name):
        def step(steps):
            order.append(name)
            time.sleep(0.01 * steps)

        return measuring.timed(step)

    found = measuring.alternate({"a": side("a"), "b": side("b")}, rounds=3, least=0.0)
    # Two to learn the pace; then two a turn, of which the second counts.
    assert order == ["a", "b", *"aabb", *"bbaa", *"aabb"]
    assert found["a"]["best"] == min(found["a"]["turns"]) >= 0.01
    assert len(found["b"]["turns"]) == 3


def test_a_ratio_is_of_turns_of_the_same_round():
    slow = {"turns": [4.0, 9.0, 2.0], "best": 2.0}
    fast = {"turns": [2.0, 3.0, 2.0], "best": 2.0}
    assert measuring.ratio(slow, fast) == {"median": 2.0, "best": 1.0}


def test_case_fails_or_times_out(tmp_path):
    start = "import subprocess, sys\n\ndef measure(case):\n    "
    (tmp_path / "failing.py").write_text(f"{start}raise SystemExit('no memory')")
    # Its child holds the output open: both must end.
    (tmp_path / "waiting.py").write_text(
        f"{start}subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    )
    (tmp_path / "working.py").write_text(
        f"{start}print('noise')\n    return {{'found': 2 + case['a']}}"
    )
    more = {"PYTHONPATH": str(tmp_path)}
    failed = measuring.in_process("failing", {"size": "base"}, 60, more)
    assert (failed["size"], failed["error"]) == ("base", "no memory")
    start = time.monotonic()
    killed = measuring.in_process("waiting", {}, 0.5, more)
    assert killed["error"] == "killed after 0 s" and time.monotonic() - start < 30
    assert measuring.in_process("working", {"a": 1}, 60, more).items() >= {
        ("a", 1),
        ("found", 3),
    }


def test_facts_name_command_versions_and_environment(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "x=1")
    found = report.facts("experiments.speed.gpu", ["--flags=a b"])
    text = report.introduction(found)
    assert text.startswith("$ python -m experiments.speed.gpu '--flags=a b'\n")
    assert f"jax {jax.__version__}" in text and "GLIBC_TUNABLES=x=1" in text


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


@pytest.mark.parametrize(
    ("size", "fields"),
    [
        ("base", (12, 768, 12, 3072)),
        ("large", (24, 1024, 16, 4096)),
        ("4/768", (4, 768, 12, 3072)),
        ("2/128", (2, 128, 2, 512)),
    ],
)
def test_sizes(size, fields):
    model = our_step.sized_config(size, 128, 1).model
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    assert tuple(model[name] for name in (*names, "intermediate_size")) == fields


def test_cases_of_the_training_step():
    options = train_step.parse(
        ["--sizes=base,2/128", "--lengths=128,512", "--batch=16,4", "--dtypes=float32"]
    )
    found = train_step.cases(options)
    shapes = [(case["size"], case["length"], case["batch"]) for case in found]
    assert shapes == [
        *(("base", 128, 16), ("base", 512, 4)),
        *(("2/128", 128, 16), ("2/128", 512, 4)),
    ]
    with pytest.raises(UserError, match="one for each"):
        train_step.cases(train_step.parse(["--lengths=8,16,32", "--batch=1,2"]))


@pytest.mark.parametrize(
    "wrong",
    [
        *("--sizes=foo", "--sizes=0/64", "--sizes=2/100", "--lengths=foo"),
        *("--lengths=0", "--lengths=8,1000", "--batch=foo", "--batch=0"),
        *("--batch=1,2,3", "--dtypes=float16", "--torch=sdp", "--attentions=flash"),
        *("--rounds=0", "--threads=-1", "--threads=9999", "--dropout=1"),
    ],
)
def test_an_option_that_cannot_be_is_refused_at_once(wrong):
    with pytest.raises(UserError, match=wrong.partition("=")[0]):
        train_step.parse([wrong])


def test_without_any_side_its_reason_is_the_error(in_this_process):
    options = train_step.parse(
        ["--quick", "--attentions=cudnn", "--torch=", "--no-keras"]
    )
    with pytest.raises(RuntimeError, match="cudnn: needs a GPU"):
        train_step.measure(train_step.cases(options)[0])


def test_a_classifier_is_bert_and_predicts_no_positions():
    (first, *_) = train_step.cases(train_step.parse(["--task=classification"]))
    assert first["torch"] == ["sdpa", "eager", "compile"]
    for other in ("--model=roberta", "--torch=sdpa-gathered"):
        with pytest.raises(UserError, match=other.partition("=")[0]):
            train_step.parse(["--task=classification", other])
    config = our_step.sized_config("2/128", 16, 4, task="classification")
    batch = our_step.random_batch(config)
    assert set(batch["label"]) <= {0, 1} and batch["label"].shape == (4,)
    # A layer's four products of vectors, two of the intermediate layer's, and the
    # scores' two; forward, and twice that backward.
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


@pytest.fixture
def in_this_process(monkeypatch):
    """A case runs here, not in a process of its own; its sides' processes have one
    simulated device, and the torch that is installed."""
    runs.one_device_each(monkeypatch)

    def run(module, case, limit):
        return {**case, **json.loads(json.dumps(train_step.measure(case)))}

    monkeypatch.setattr(measuring, "in_process", run)


@pytest.mark.parametrize("model", ["roberta", "modernbert"])
def test_the_sides_of_another_model(model, tmp_path, in_this_process):
    pytest.importorskip("torch", reason="needs the parity extra")
    output = tmp_path / "found.json"
    given = ["--quick", "--dtypes=float32", f"--model={model}", "--no-keras"]
    train_step.main([*given, "--torch=sdpa,sdpa-gathered", f"--output={output}"])
    (case,) = json.loads(output.read_text())["cases"]
    sides = ["ours, einsum", "torch, sdpa", "torch, sdpa-gathered"]
    assert list(case["sides"]) == sides
    assert set(case["not_run"]) == {"ours, fused", "ours, cudnn"}


@pytest.mark.parametrize(
    ("task", "theirs"), [("pretraining", "sdpa-gathered"), ("classification", "sdpa")]
)
def test_a_quick_run_of_the_training_step(
    task, theirs, tmp_path, in_this_process, capsys
):
    output = tmp_path / "found.json"
    torch = theirs if importlib.util.find_spec("transformers") else ""
    given = ["--quick", "--dtypes=float32", "--attentions=einsum", f"--torch={torch}"]
    train_step.main([*given, f"--task={task}", f"--output={output}"])
    told = capsys.readouterr().out
    found = json.loads(output.read_text())
    (case,) = found["cases"]
    assert found["command"].startswith(f"python -m {train_step.MODULE} --quick")
    sides = ["ours, einsum", f"torch, {theirs}"][: 2 if torch else 1]
    if importlib.util.find_spec("keras_hub"):
        sides.append(train_sides.KERAS)
        assert case["not_run"] == {}
    else:
        (why,) = case["not_run"].values()
        assert f"No module named 'keras'; {train_sides.KERAS_INSTALL}" in why
    assert list(case["sides"]) == sides
    assert all(name in told for name in sides)
    assert case["peaks"]["jax"]["float32"] > 0


def test_a_profile():
    (case,) = gpu.parse(["--quick", "--dtypes=float32", "--attentions=einsum"])[1]
    found = measuring.in_process(gpu.MODULE, case, 300, runs.anew())
    assert "error" not in found, found
    profile = found["profile"]
    assert profile["measured_ms"] > 0 and profile["model_ms"] > 0
    assert profile["kinds"]["matrix products"][1] > 0
    told = gpu.show(found)
    assert "kernels" in told and "measured peaks" in told


def test_each_case_for_a_gpu_is_written(tmp_path, monkeypatch, capsys):
    def fails(module, case, limit, variables):
        assert variables["XLA_FLAGS"].endswith(gpu.WITHOUT_GRAPHS)
        return {**case, "error": f"killed after {limit:.0f} s"}

    monkeypatch.setattr(measuring, "in_process", fails)
    output = tmp_path / "gpu.json"
    given = ["--attentions=einsum,fused", "--limit=9", f"--output={output}"]
    assert gpu.main(given) == 1
    errors = [case["error"] for case in json.loads(output.read_text())["cases"]]
    assert errors == ["killed after 9 s"] * 2
    lines = capsys.readouterr().out.splitlines()
    assert sum("no result: killed after 9 s" in line for line in lines) == 4


def test_failed_case_in_table():
    case = train_step.cases(train_step.parse([]))[0]
    ((*_, told, _, _, _, _, _),) = train_step.rows_of({**case, "error": "no memory"})
    assert told == "no result: no memory"
