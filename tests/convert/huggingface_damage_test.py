"""Hugging Face folders that are damaged or do not fit: one line says what is wrong."""

import json
import os
import shutil

import numpy as np
import pytest

from bert_jax import pretrained
from bert_jax.convert import weights
from bert_jax.errors import UserError


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def empty(folder):
    (folder / "model.safetensors").write_bytes(b"")


def no_config(folder):
    (folder / "config.json").unlink()


def huge_config(folder):
    with (folder / "config.json").open("a") as file:
        file.write(" " * 50_000_000)


def not_json(folder):
    (folder / "config.json").write_text("{")


def deep_json(folder):
    (folder / "config.json").write_text("[" * 200_000)


def link(folder):
    elsewhere = folder.parent / "elsewhere.safetensors"
    (folder / "model.safetensors").rename(elsewhere)
    (folder / "model.safetensors").symlink_to(elsewhere)


def pipe(folder):
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def loop(name):
    def damage(folder):
        (folder / name).unlink()
        (folder / name).symlink_to(name)

    return damage


def surrogate(folder):
    fields = json.loads((folder / "config.json").read_text())
    fields["id2label"] = {"0": "good", "1": "\ud800"}
    (folder / "config.json").write_text(json.dumps(fields))


def pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_weights(folder):
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    "own",
    [
        *(3, "run", [], {"config": 3}, {"config": {}}, {"config": {"task": 3}}),
        *({"config": {"task": {"name": 3}}}, {"task": []}, {"config": None}),
        {"config": {"task": {"name": "text", "labels": 5}}},
        *({"scores": {"dev": {"f1": 10**400}}}, {"max_seq_length": 0}),
    ],
)
def test_what_an_export_says_of_its_run_is_of_the_right_types(make_folder, own):
    folder = make_folder()
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "bert_jax": own}))
    message = "config.json: bert_jax=.* is not from an export"
    assert_one_line(message, lambda: weights.recorded(folder))
    assert_one_line(message, lambda: weights.read(folder))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "model.safetensors: .*damaged: export or copy it again; "),
        (empty, "model.safetensors: .*damaged"),
        (no_config, "has no config.json"),
        (huge_config, "config.json: has 50,000,"),
        (not_json, "config.json: not JSON"),
        (deep_json, "config.json: not JSON"),
        (link, "links out of its folder"),
        (pipe, "config.json: not a file"),
        (loop("config.json"), "config.json: a link that leads to no file"),
        (loop("model.safetensors"), "model.safetensors: a link that leads to no"),
        (loop("vocab.txt"), "vocab.txt: "),
        (surrogate, "half of a surrogate pair"),
        (pickle, "can execute code.*weights_only=True"),
        (no_weights, "no model.safetensors"),
    ],
)
def test_damaged_files(make_folder, damage, message):
    folder = make_folder()
    damage(folder)
    assert_one_line(message, lambda: pretrained.load(folder).tokenizer)


def test_a_damaged_file_of_the_hubs_cache(make_folder, tmp_path):
    model = tmp_path / "models--owner--name"
    folder, blob = model / "snapshots" / "1", model / "blobs" / "weights"
    shutil.copytree(make_folder(), folder)
    truncate(folder)
    blob.parent.mkdir()
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to("../../blobs/weights")
    # A new download would keep the file that the link leads to.
    message = f"damaged: .* cache, delete {blob}, and name hf:OWNER/NAME again$"
    assert_one_line(message, lambda: weights.read(folder))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mpnet"}, "model_type is 'mpnet'"),
        ({"architectures": ["BertGeneration"]}, "architecture 'BertGeneration'"),
        ({"hidden_act": "silu"}, "hidden_act='silu'"),
        ({"hidden_act": []}, "hidden_act"),
        ({"architectures": [{}]}, "architecture"),
        ({"hidden_size": "12"}, "hidden_size='12' is not a valid number"),
        ({"hidden_size": 10**400}, "hidden_size=1000"),
        ({"hidden_size": True}, "hidden_size=True is not a valid number"),
        ({"hidden_size": 16}, r"\(50, 12\).*\(50, 16\)|does not divide"),
        ({"intermediate_size": 24}, r"\(20, 12\).*\(24, 12\)"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000: must be at most"),
        ({"num_hidden_layers": 2}, "has 3 layers.*num_hidden_layers=2"),
        ({"num_attention_heads": 5}, "does not divide"),
        ({"max_position_embeddings": 16}, r"\(8, 12\).*\(16, 12\)"),
        ({"vocab_size": 60}, r"\(50, 12\).*\(60, 12\)"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"architectures": ["BertForQuestionAnswering"]}, "qa_outputs.weight is miss"),
        ({"id2label": {"1": "x"}}, "id2label"),
        ({"id2label": 3}, "id2label"),
        ({"id2label": {"0": "A", "1": "A"}}, "names both 0 and 1 'A'"),
    ],
)
def test_configs_that_do_not_go_with_the_weights(make_folder, fields, message):
    folder = make_folder(fields=fields)
    assert_one_line(message, lambda: weights.read(folder))


def not_a_number(tensors):
    tensors["bert.pooler.dense.weight"][3, 4] = np.nan


def integers(tensors):
    tensors["bert.pooler.dense.weight"] = np.ones((12, 12), np.int32)


def twice(tensors):
    name = "bert.pooler.dense.weight"
    tensors[name.removeprefix("bert.")] = tensors[name] + 1


def one_missing(tensors):
    del tensors["bert.encoder.layer.1.output.dense.bias"]


def too_large(tensors):
    tensors["bert.pooler.dense.weight"] = np.full((12, 12), 1e300)


def layer_of_many_digits(tensors):
    tensors[f"bert.encoder.layer.{'9' * 5000}.bias"] = np.ones(1, np.float32)


def another_shape(tensors):
    tensors["cls.seq_relationship.weight"] = np.ones((3, 12), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (not_a_number, "bert.pooler.dense.weight has NaN"),
        (integers, "bert.pooler.dense.weight. holds I32"),
        (twice, "twice"),
        (one_missing, "bert.encoder.layer.1.output.dense.bias is missing"),
        (another_shape, r"\(3, 12\).*\(2, 12\)"),
        (too_large, "bert.pooler.dense.weight has NaN or infinity"),
        (layer_of_many_digits, "has 1000000000 layers"),
    ],
)
def test_damaged_tensors(make_folder, change, message):
    folder = make_folder(change=change)
    assert_one_line(message, lambda: weights.read(folder))


@pytest.mark.parametrize(("lines", "pieces"), [(49, 49), (51, 51)])
def test_a_vocabulary_of_another_size(make_folder, lines, pieces):
    folder = make_folder()
    path = folder / "vocab.txt"
    content = [*path.read_text().splitlines(), "more"][:lines]
    path.write_text("\n".join(content) + "\n")
    assert_one_line(f"{pieces} pieces.*50", lambda: pretrained.load(folder).tokenizer)


def test_no_folder(tmp_path):
    assert_one_line("no such folder", lambda: pretrained.load(tmp_path / "x"))
    assert_one_line("has no config.json", lambda: pretrained.load(tmp_path))


def test_an_adapter_is_named(tmp_path):
    fields = {"peft_type": "LORA", "base_model_name_or_path": "google-bert/b"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(fields))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    message = "adapter of PEFT for 'google-bert/b'.*merge_and_unload"
    assert_one_line(message, lambda: pretrained.load(tmp_path))


def assert_one_line(message, function):
    with pytest.raises(UserError, match=message) as caught:
        function()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["vocab.txt"], "has no config.json"),
        (["config.json"], "no model.safetensors and no checkpoints/"),
        (["bert_model.ckpt.index"], "has no bert_config.json"),
        (["config.json", "checkpoints"], "is this a work directory"),
    ],
)
def test_folders_of_no_kind(tmp_path, files, message):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match=message):
        pretrained.load(tmp_path)
