"""experiments.speed.inference: its sides give the same labels."""

import json
from argparse import Namespace

import pytest

from bert_jax.errors import UserError
from experiments.speed import inference
from tests import runs

TEXTS = ("a quick brown fox", "seven cats watch the lazy dog go home", "no")


def test_sides(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="needs the parity extra")
    runs.one_device_each(monkeypatch)
    vocabulary = runs.ROOT / "pretrained" / "mini" / "vocab.txt"
    rows, output = tmp_path / "rows.jsonl", tmp_path / "found.json"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    size = ["--layers=1", "--hidden=64", "--rows=3", "--rounds=1", "--turn=0"]
    given = [f"--vocabulary={vocabulary}", "--texts", str(rows)]
    assert inference.main([*given, *size, f"--output={output}"]) == 0
    found = json.loads(output.read_text())
    assert found["same_label"] == 1.0
    assert {"predict", "pipeline", "pipeline, one text"} <= set(found["sides"])


def test_inference_option_that_is_wrong_is_named(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a"}\n{"sent1": "a"}\n')
    shape = {"layers": 1, "hidden": 64, "rows": 3, "batch": 1, "rounds": 1}
    with pytest.raises(UserError, match=r"rows\.jsonl:2: no column 'text'"):
        inference.texts_of(Namespace(texts=[str(file)], vocabulary="", **shape))
    for name, value in (("rows", 0), ("batch", 0), ("hidden", 100)):
        given = Namespace(texts=[], vocabulary="", **{**shape, name: value})
        with pytest.raises(UserError, match=f"--{name}={value}: must be"):
            inference.texts_of(given)
