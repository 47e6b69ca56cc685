"""Hugging Face folders out: round trips, their contents, whole or not at all."""

import dataclasses
import json
import os

import huggingface_hub
import numpy as np
import pytest
from safetensors import safe_open

from bert_jax import tokenization
from bert_jax.convert import export, layout, merge, weights
from bert_jax.convert.sentence_transformers import TextVectors
from configs import tiny
from tests.close import equal
from tests.micro import error_line

CLASSIFIER = "BertForSequenceClassification-three_heads"


@pytest.mark.parametrize("architecture", sorted(layout.BERT.architectures))
def test_comes_back_as_it_was(golden, make_folder, tmp_path, architecture):
    case = f"{architecture}-three_heads"
    found = weights.read_weights(make_folder(case))
    tokenizer = weights.find_source(make_folder(case)).tokenizer(found.config)
    export.export_folder(found, tokenizer, tmp_path / "out", {"step": 7})
    back = weights.read_weights(tmp_path / "out")
    assert equal(back.params, found.params)
    same = {"params": {}, "provenance": {}, "pad_token_id": None}
    assert dataclasses.replace(back, **same) == dataclasses.replace(found, **same)
    again = weights.find_source(tmp_path / "out").tokenizer(back.config)
    assert again.to_str() == tokenizer.to_str()

    # The names are those of `transformers`, every one of them.
    with safe_open(tmp_path / "out" / "model.safetensors", "np") as file:
        shapes = {k: file.get_slice(k).get_shape() for k in file.keys()}  # noqa: SIM118
        assert file.metadata() == {"format": "pt"}
    assert shapes == golden.CASES[case]["shapes"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert config["bert_jax"] == {"step": 7}


def test_labels_and_problem_type(make_folder, tmp_path):
    names = {"0": "nein", "1": "vielleicht", "2": "ja"}
    fields = {"id2label": names, "problem_type": "single_label_classification"}
    found = weights.read_weights(make_folder(CLASSIFIER, fields))
    export.export_folder(found, None, tmp_path / "out", {})
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == names
    assert config["label2id"] == {"nein": 0, "vielleicht": 1, "ja": 2}
    assert config["problem_type"] == "single_label_classification"


def test_classifier_is_divided_by_its_temperature(make_folder, tmp_path, monkeypatch):
    source = weights.find_source(make_folder(CLASSIFIER))
    facts = {"task": {"temperature": 2.5}, "step": 3}
    found = source.read()
    learned = {"sequence_classification": found.params["sequence_classification"]}
    found = dataclasses.replace(found, provenance=facts, learned=learned)
    calibrated = export.divide_logits(found, 2.5)
    head = calibrated.params["sequence_classification"]
    assert equal(calibrated.learned["sequence_classification"], head)
    found = dataclasses.replace(found, learned={})
    monkeypatch.setattr(source, "read", lambda name: found)
    source.export(tmp_path / "out")
    back = weights.read_weights(tmp_path / "out")
    assert back.provenance == {"task": {}, "step": 3} and facts["task"]
    for name, value in found.params["sequence_classification"].items():
        new = back.params["sequence_classification"][name]
        np.testing.assert_allclose(new, value / 2.5, rtol=1e-6)
    assert equal(back.params["bert"], found.params["bert"])


def test_labels_that_are_renamed_in_an_export_keep_their_thresholds(
    make_folder, tmp_path
):
    found = weights.read_weights(make_folder(CLASSIFIER))
    task = {"name": "text", "labels": list(found.labels), "positive_label": "LABEL_1"}
    facts = {"config": {"task": task}, "task": {"thresholds": {"LABEL_1": 0.5}}}
    export.export_folder(found, None, tmp_path / "new", facts)
    path = tmp_path / "new" / "config.json"
    fields = json.loads(path.read_text())
    fields["id2label"] = {"0": "z", "1": "y", "2": "x"}
    path.write_text(json.dumps(fields))
    source = weights.find_source(tmp_path / "new")
    for _ in range(2):  # asked again, they are the same
        task = source.run_config()["task"]
        assert (task["labels"], task["positive_label"]) == (["z", "y", "x"], "y")
        assert source.read().provenance["task"] == {"thresholds": {"y": 0.5}}


def test_card_has_the_thresholds_and_how_vectors_are_made(make_folder, tmp_path):
    found = weights.read_weights(make_folder(CLASSIFIER))
    thresholds = {"LABEL_0": 0.0, "LABEL_1": 1.0, "LABEL_2": -1.0}
    facts = {"task": {"thresholds": thresholds}}
    export.export_folder(found, None, tmp_path / "labels", facts)
    card = (tmp_path / "labels" / "README.md").read_text()
    assert "| LABEL_0 | 0.5000 |" in card and "| LABEL_1 | 0.7311 |" in card
    facts = {"scores": {"dev": {"accuracy": 0.91234, "f1:a: 'b'": 0.5}}}
    facts["config"] = {"task": {"name": "text"}, "init_from": "hf:org/name@main"}
    export.export_folder(found, None, tmp_path / "scores", facts)
    data = huggingface_hub.ModelCard.load(tmp_path / "scores" / "README.md").data
    assert data.base_model == "org/name"
    assert data.pipeline_tag == "text-classification"
    results = [
        (x.dataset_name, x.metric_type, x.metric_value) for x in data.eval_results
    ]
    assert results == [("dev", "accuracy", 0.9123), ("dev", "f1:a: 'b'", 0.5)]
    (tmp_path / "base").mkdir()
    begun = "---\nlanguage:\n- en\n- de\nlicense: apache-2.0\ntags: [x]\n---\n# Base\n"
    (tmp_path / "base" / "README.md").write_text(begun)
    facts["config"]["init_from"] = str(tmp_path / "base")
    export.export_folder(found, None, tmp_path / "tuned", facts)
    data = huggingface_hub.ModelCard.load(tmp_path / "tuned" / "README.md").data
    assert (data.language, data.license) == (["en", "de"], "apache-2.0")
    assert data.base_model is None and data.tags == ["bert_jax"]
    vectors = TextVectors("cls", (), True, 9, "query: ", dimensions=(4, 8))
    found = dataclasses.replace(found, vectors=vectors)
    export.export_folder(found, None, tmp_path / "vectors", {})
    card = (tmp_path / "vectors" / "README.md").read_text()
    for text in (
        "library_name: sentence-transformers",
        "pooling `cls`, then length 1. Texts begin with `query: `.",
        "may be cut to 4, 8 numbers",
    ):
        assert text in card


def test_spare_rows_get_pieces(make_folder, tmp_path):
    folder = make_folder()
    lines = (folder / "vocab.txt").read_text().splitlines()
    (folder / "short.txt").write_text("\n".join(lines[:-3]) + "\n")
    tokenizer = tokenization.load(folder / "short.txt")
    found = weights.read_weights(folder)
    export.export_folder(found, tokenizer, tmp_path / "out", {})
    back = weights.find_source(tmp_path / "out").tokenizer(found.config)
    names = [back.id_to_token(n) for n in (46, 47, 49)]
    assert names == [lines[46], "[unused0]", "[unused2]"]
    merge.check_tokenizer(tokenizer, back, "out")


def test_export_replaces_no_file(make_folder, tmp_path):
    found = weights.read_weights(make_folder())
    out = tmp_path / "a" / "out"
    out.mkdir(parents=True)
    export.export_folder(found, None, out, {"step": 1})
    (tmp_path / "file").write_text("")
    for folder in (out, tmp_path / "file"):
        line = error_line(export.export_folder, found, None, folder, {})
        assert "is not empty; name a new folder" in line
    with pytest.raises(FileExistsError, match="/file'"):
        export.export_folder(found, None, tmp_path / "file" / "out", {})
    assert json.loads((out / "config.json").read_text())["bert_jax"] == {"step": 1}


def test_whole_or_not_at_all(make_folder, tmp_path, monkeypatch):
    found = weights.read_weights(make_folder())
    before = sorted(os.listdir(tmp_path))

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        export.export_folder(found, None, tmp_path / "new", {"step": 2})
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("fields", "step", "length"),
    [
        ({}, 10, 6),
        ({"phase2.fraction": 0.1, "phase2.max_seq_length": 8}, 90, 6),  # phase 1 alone
        ({"phase2.fraction": 0.1, "phase2.max_seq_length": 8}, 91, 8),
        ({"corpus.packing": True, "corpus.shift_positions": True}, 10, None),
    ],
)
def test_length_that_a_run_has_trained(fields, step, length):
    config = tiny.get_config()
    fields = {"corpus.max_seq_length": 6, "train.num_steps": 100, **fields}
    config.update_from_flattened_dict(fields)
    expected = {} if length is None else {"max_seq_length": length}
    assert weights.trained_length(config, step) == expected
