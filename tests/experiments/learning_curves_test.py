"""Learning curves: trained, judged, drawn."""

import json

import pytest

from experiments.claims import learning_curves as curves
from tests import stand_ins

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
