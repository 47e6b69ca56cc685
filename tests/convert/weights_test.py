"""Hugging Face folders in: parity with stored numbers, odd forms, damaged folders."""

import dataclasses
import json
import os
import re
import shutil
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from flax import serialization
from safetensors.numpy import load_file, save_file

from bert_jax import pretrained
from bert_jax.convert import weights
from tests.close import equal
from tests.micro import error_line

HEADS = ("PreTraining", "MaskedLM", "NextSentencePrediction", "SequenceClassification")
HEADS += ("TokenClassification", "QuestionAnswering", "MultipleChoice")
CASES = ["BertModel-three_heads", *(f"BertFor{head}-three_heads" for head in HEADS)]
CASES += ["BertForPreTraining-wide", "BertForPreTraining-deep"]
TOLERANCE = 1e-5  # relative to the largest magnitude


def real(array, mask):
    """The values at tokens, where the array has a row for each position."""
    mask = mask.astype(bool)
    return array[mask] if array.shape[: mask.ndim] == mask.shape else array


def assert_close(actual, reference, mask, tolerance=TOLERANCE):
    actual, reference = np.asarray(actual), np.asarray(reference)
    assert actual.shape == reference.shape
    actual, reference = real(actual, mask), real(reference, mask)
    np.testing.assert_allclose(
        actual, reference, rtol=0, atol=tolerance * abs(reference).max()
    )


@pytest.mark.parametrize("case", CASES)
def test_equals_what_transformers_computed(golden, make_folder, case):
    bert = pretrained.load(make_folder(case))
    batch = golden.inputs(golden.CASES[case]["config"])
    mask = batch["input_mask"]
    outputs = bert.apply(**batch)
    expected = [key for key in golden.ARRAYS if key.startswith(f"{case}/")]
    assert expected
    for key in expected:
        name, reference = key.partition("/")[2], golden.ARRAYS[key]
        if name == "hidden_states":
            for ours, layer in zip(outputs[name], reference, strict=True):
                assert_close(ours, layer, mask)
        else:
            assert_close(outputs[name], reference, mask)
    heads = golden.OUTPUTS[case.partition("-")[0]]
    has_pooler = "pooler" in bert.params["bert"]
    assert set(outputs) - {"pooled"} == {"hidden_states", *heads} - {"pooled"}
    assert ("pooled" in outputs) == has_pooler


@pytest.mark.slow
def test_bfloat16_stays_within_bounds(golden, make_folder):
    """Matrix products in bfloat16, whose 8 bits round by up to 0.4%, against float32:
    1.4% in the mean square and 1.7% at most were measured."""
    case = "BertForPreTraining-deep"
    folder = make_folder(case)
    found = weights.read_weights(folder)
    config = dataclasses.replace(found.config, dtype="bfloat16")
    bert = pretrained.Bert(folder, dataclasses.replace(found, config=config))
    batch = golden.inputs(golden.CASES[case]["config"])
    outputs = bert.apply(**batch)
    for name in ("masked_lm_logits", "next_sentence_logits"):
        reference = real(golden.ARRAYS[f"{case}/{name}"], batch["input_mask"])
        error = real(np.asarray(outputs[name]), batch["input_mask"]) - reference
        assert 1e-4 < np.sqrt((error**2).mean() / (reference**2).mean()) < 0.03
        assert abs(error).max() < 0.04 * abs(reference).max()


def with_copies(tensors):
    """As older versions saved: tied parameters twice, and a buffer."""
    matrix = tensors["bert.embeddings.word_embeddings.weight"]
    return tensors | {
        "cls.predictions.decoder.weight": matrix.copy(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].copy(),
        "bert.embeddings.position_ids": np.arange(8)[None],
    }


def renamed(name):
    """A change of each tensor's name."""
    return lambda tensors: {name(key): array for key, array in tensors.items()}


def old_name(name):
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    return name.replace("LayerNorm.bias", "LayerNorm.beta")


@pytest.mark.parametrize(
    "change",
    [
        renamed(lambda name: name.removeprefix("bert.")),
        renamed(old_name),
        with_copies,
        renamed("model.{}".format),
        renamed("_orig_mod.module.{}".format),
    ],
)
def test_other_forms_are_the_same(make_folder, change):
    expected = weights.read_weights(make_folder())
    found = weights.read_weights(make_folder(change=change))
    assert equal(found.params, expected.params)
    assert found.left_over == ()


def as_flax(tensors):
    """The tree of flax_model.msgpack: a kernel is [inputs, outputs] there."""
    tree = {}
    for name, array in tensors.items():
        *inner, last = name.split(".")
        if last == "weight":
            kinds = {"LayerNorm": "scale", "layer_norm": "scale"}
            embeds = inner[-1].endswith("_embeddings")
            last = "embedding" if embeds else kinds.get(inner[-1], "kernel")
        leaf = tree
        for key in inner:
            leaf = leaf.setdefault(key, {})
        leaf[last] = array.T if last == "kernel" else array
    return tree


@pytest.mark.parametrize(("case", "wrapped"), [(CASES[1], False), (CASES[4], True)])
def test_file_of_flax_is_read(make_folder, case, wrapped):
    folder = make_folder(case)
    expected = weights.read_weights(folder)
    tree = as_flax(load_file(folder / "model.safetensors"))
    tree = {"params": tree} if wrapped else tree
    (folder / "model.safetensors").unlink()
    (folder / "flax_model.msgpack").write_bytes(serialization.msgpack_serialize(tree))
    found = weights.read_weights(folder)
    assert equal(found.params, expected.params)
    assert (found.left_over, found.labels) == (expected.left_over, expected.labels)


@pytest.mark.parametrize(("dtype", "shards"), [("float32", 1), ("bfloat16", 2)])
def test_files_of_pytorch_are_read(torch, make_folder, dtype, shards):
    folder = make_folder()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    kind = getattr(torch, dtype)
    saved = {name: torch.tensor(value, dtype=kind) for name, value in tensors.items()}
    files = {name: "pytorch_model.bin" for name in saved}
    if shards > 1:
        files = {
            name: f"pytorch_model-0000{number % shards + 1}-of-0000{shards}.bin"
            for number, name in enumerate(saved)
        }
        index = folder / "pytorch_model.bin.index.json"
        index.write_text(json.dumps({"weight_map": files}))
    for file in {*files.values()}:
        part = {name: saved[name] for name in saved if files[name] == file}
        torch.save(part, folder / file)
    rounded = {name: value.float().numpy() for name, value in saved.items()}
    other = make_folder(change=lambda _: rounded)
    expected = weights.read_weights(other)
    found = weights.read_weights(folder)
    assert equal(found.params, expected.params)
    assert found.left_over == expected.left_over


class Runs:
    """A pickle of it would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_of_pytorch_is_not_run(torch, make_folder, tmp_path, monkeypatch):
    folder = make_folder()
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Runs(tmp_path / "made")}, folder / "pytorch_model.bin")
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.5.1+cpu")
        line = error_line(weights.read_weights, folder)
        assert re.search("bin: a pickle.* torch 2.5.1.*2025-32434", line)
    line = error_line(weights.read_weights, folder)
    assert re.search("pytorch_model.bin: .*more than tensors", line)
    assert not (tmp_path / "made").exists()


def test_file_of_pytorch_needs_it(make_folder, monkeypatch):
    folder = make_folder()
    pickle(folder)
    monkeypatch.setitem(sys.modules, "torch", None)
    line = error_line(weights.read_weights, folder)
    assert re.search("pip install torch.*weights_only=True", line)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_tensors_of_other_precisions_become_float32(make_folder, dtype):
    def change(tensors):
        return {name: value.astype(dtype) for name, value in tensors.items()}

    expected = jax.tree.map(
        lambda x: x.astype(dtype).astype(np.float32),
        weights.read_weights(make_folder()).params,
    )
    found = weights.read_weights(make_folder(change=change)).params
    assert equal(found, expected)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(found))


def test_shards(make_folder):
    folder = make_folder()
    expected = weights.read_weights(folder).params
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    index = {}
    for number in range(3):
        shard = f"model-0000{number + 1}-of-00003.safetensors"
        part = {name: tensors[name] for name in names[number::3]}
        save_file(part, folder / shard)
        index |= dict.fromkeys(part, shard)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    assert equal(weights.read_weights(folder).params, expected)

    (folder / shard).unlink()
    line = error_line(weights.read_weights, folder)
    assert f"names '{shard}', which does not" in line


def test_folder_without_a_pooler(make_folder):
    def change(tensors):
        return {k: v for k, v in tensors.items() if "pooler" not in k}

    bert = pretrained.load(make_folder("BertModel-three_heads", change=change))
    found = bert.encode(["a b", "c"], ["d", "e f g"])
    assert found["hidden_states"].shape == (2, 7, 12) and "pooled" not in found
    case = "BertForSequenceClassification-three_heads"
    classifier = pretrained.load(make_folder(case, change=change))
    assert classifier.heads == ()
    line = error_line(classifier.predict, ["a b"])
    assert re.search("needs: .*sequence_classification", line)


@pytest.mark.slow
def test_encode_is_apply_row_by_row(make_folder):
    bert = pretrained.load(make_folder("BertModel-three_heads"))
    texts = ["a", "B c d", "é", "a b c d e f"]
    found = bert.encode(texts)
    hidden, pooled = found["hidden_states"], found["pooled"]
    assert hidden.shape == (4, 8, 12) and pooled.shape == (4, 12)
    for row, ids in enumerate([[2, 5, 3], [2, 6, 7, 8, 3], [2, 9, 3]]):
        alone = bert.apply([ids], np.ones((1, len(ids))), np.zeros((1, len(ids))))
        last = alone["hidden_states"][-1][0]
        np.testing.assert_allclose(hidden[row, : len(ids)], last, atol=1e-5)
        np.testing.assert_allclose(pooled[row], alone["pooled"][0], atol=1e-5)
    many = bert.encode(texts * 20)
    np.testing.assert_allclose(many["pooled"][::4], pooled[:1].repeat(20, 0), atol=1e-6)
    assert "text 1: 9 tokens" in error_line(bert.encode, ["a", "a b c d e f g"])


@pytest.mark.parametrize(
    ("fields", "text", "ids"),
    [
        ({}, "A b", [2, 5, 6, 3]),
        ({"do_lower_case": True}, "É", [2, 9, 3]),
        ({"do_lower_case": False}, "A b", [2, 1, 6, 3]),
        ({"do_lower_case": True, "strip_accents": False}, "É", [2, 1, 3]),
    ],
)
@pytest.mark.parametrize("kind", ["vocab.txt", "tokenizer.json"])
def test_tokenizer_config_decides_on_case(make_folder, fields, text, ids, kind):
    folder = make_folder()
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    config = weights.read_weights(folder).config
    if kind == "tokenizer.json":
        tokenizer = weights.find_source(make_folder()).tokenizer(config)
        tokenizer.save(str(folder / kind))
        (folder / "vocab.txt").unlink()
    assert weights.find_source(folder).tokenizer(config).encode(text).ids == ids


def test_vocabulary_with_capitals_is_cased(make_folder):
    folder = make_folder()
    text = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(text.replace("\nz\n", "\nZ\n"))
    config = weights.read_weights(folder).config
    tokenizer = weights.find_source(folder).tokenizer(config)
    assert tokenizer.encode("Z z").tokens == ["[CLS]", "Z", "[UNK]", "[SEP]"]


def test_pretraining_heads_are_kept(make_folder):
    """Files of BertForMaskedLM often hold the other head and the pooler as well."""
    fields = {"architectures": ["BertForMaskedLM"]}
    found = weights.read_weights(make_folder(fields=fields))
    assert found.architecture == "BertForPreTraining"
    assert found.heads == ("masked_lm", "next_sentence")


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def empty_flax(folder):
    (folder / "model.safetensors").unlink()
    (folder / "flax_model.msgpack").write_bytes(b"")


def longer_vocabulary(folder):
    with (folder / "vocab.txt").open("a") as file:
        file.write("more\n")


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


def unfinished(folder):
    empty(folder)
    for name in ("config.json", "checkpoints"):
        (folder / name).write_text("{}")


def with_nan(tensors):
    tensors["bert.pooler.dense.weight"][3, 4] = np.nan


@pytest.mark.parametrize(
    ("damage", "made", "said"),
    [
        (truncate, {}, "model.safetensors: .*damaged: export or copy it again; "),
        (
            lambda path: (path / "config.json").unlink(),
            {},
            "config.json: cannot be read",
        ),
        (pickle, {}, "pytorch_model.bin: (needs torch|.*or is damaged: copy it again)"),
        (empty_flax, {}, "msgpack: .*not a file of Flax's weights"),
        (longer_vocabulary, {}, "51 pieces.*50"),
        (None, {"change": with_nan}, "bert.pooler.dense.weight has NaN"),
        (None, {"fields": {"model_type": "deberta"}}, "model_type is 'deberta'"),
        (
            None,
            {"fields": {"hidden_size": 16}},
            r"\(50, 12\).*\(50, 16\)|does not divide",
        ),
        (shutil.rmtree, {}, "no such folder"),
        (empty, {}, "no weights"),
        (unfinished, {}, "is this a run's folder"),
    ],
)
def test_folder_that_is_damaged_is_one_line(make_folder, damage, made, said):
    folder = make_folder(**made)
    if damage:
        damage(folder)
    line = error_line(lambda: pretrained.load(folder).tokenizer)
    assert re.search(said, line) and len(line) < 600
