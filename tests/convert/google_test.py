"""Google's checkpoints in: by TensorFlow if it is installed, else by a fake."""

import json
import re
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from bert_jax import pretrained
from bert_jax.convert import export, weights
from tests.micro import error_line

FIELDS = {
    "vocab_size": 15,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}


def shapes(heads=("cls/predictions", "cls/seq_relationship")):
    """The variables of modeling.py and run_pretraining.py, written out."""
    norm = {"LayerNorm/gamma": (6,), "LayerNorm/beta": (6,)}
    layer = {
        **{f"attention/self/{n}/kernel": (6, 6) for n in ("query", "key", "value")},
        **{f"attention/self/{n}/bias": (6,) for n in ("query", "key", "value")},
        "attention/output/dense/kernel": (6, 6),
        "attention/output/dense/bias": (6,),
        **{f"attention/output/{k}": v for k, v in norm.items()},
        "intermediate/dense/kernel": (6, 10),
        "intermediate/dense/bias": (10,),
        "output/dense/kernel": (10, 6),
        "output/dense/bias": (6,),
        **{f"output/{k}": v for k, v in norm.items()},
    }
    bert = {
        "embeddings/word_embeddings": (15, 6),
        "embeddings/position_embeddings": (7, 6),
        "embeddings/token_type_embeddings": (2, 6),
        **{f"embeddings/{k}": v for k, v in norm.items()},
        **{f"encoder/layer_{n}/{k}": v for n in range(2) for k, v in layer.items()},
        "pooler/dense/kernel": (6, 6),
        "pooler/dense/bias": (6,),
    }
    found = {f"bert/{name}": shape for name, shape in bert.items()}
    if "cls/predictions" in heads:
        found |= {
            "cls/predictions/transform/dense/kernel": (6, 6),
            "cls/predictions/transform/dense/bias": (6,),
            "cls/predictions/transform/LayerNorm/gamma": (6,),
            "cls/predictions/transform/LayerNorm/beta": (6,),
            "cls/predictions/output_bias": (15,),
        }
    sizes = {"cls/seq_relationship/": 2, "cls/squad/": 2, "": 3}
    for scope, size in sizes.items():
        if scope.rstrip("/") in heads:
            found[f"{scope}output_weights"] = (size, 6)
            found[f"{scope}output_bias"] = (size,)
    return found


def variables(**given):
    random = np.random.RandomState(0)
    arrays = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes(**given).items()
    }
    slots = {
        f"{name}/{slot}": np.zeros_like(value)
        for name, value in arrays.items()
        for slot in ("adam_m", "adam_v")
    }
    return {**arrays, **slots, "global_step": np.array(20)}


def make_folder(tmp_path, fields=None, vocabulary="abcdefghij"):
    folder = tmp_path / "google"
    folder.mkdir()
    (folder / "bert_config.json").write_text(json.dumps({**FIELDS, **(fields or {})}))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *vocabulary]
    (folder / "vocab.txt").write_text("".join(f"{p}\n" for p in pieces))
    for ending in ("index", "data-00000-of-00001"):
        (folder / f"bert_model.ckpt.{ending}").write_bytes(b"")
    return folder


@pytest.fixture
def stand_in(monkeypatch):
    """A module in TensorFlow's place that reads these arrays from any checkpoint."""

    def install(arrays):
        reader = SimpleNamespace(
            get_variable_to_shape_map=lambda: {
                k: [*v.shape] for k, v in arrays.items()
            },
            get_tensor=arrays.__getitem__,
        )
        module = SimpleNamespace(
            train=SimpleNamespace(load_checkpoint=lambda prefix: reader),
            config=SimpleNamespace(set_visible_devices=lambda devices, kind: None),
        )
        monkeypatch.setitem(sys.modules, "tensorflow", module)

    return install


def numbers(tree):
    return np.sort(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)]))


def assert_right(found, arrays):
    """Every variable is in its place, its axes too."""
    bert, layer = found.params["bert"], found.params["bert"]["encoder"]["layer_1"]
    prefix = "bert/encoder/layer_1"
    for name, ours, theirs in (
        ("embeddings/word_embeddings", bert["embeddings"]["word_embeddings"], None),
        ("embeddings/LayerNorm/gamma", bert["embeddings"]["layer_norm"], "scale"),
        ("pooler/dense/kernel", bert["pooler"], "kernel"),
    ):
        array = ours[theirs or "embedding"]
        np.testing.assert_array_equal(array, arrays[f"bert/{name}"])
    query = arrays[f"{prefix}/attention/self/query/kernel"]
    np.testing.assert_array_equal(
        layer["attention"]["query"]["kernel"][:, 1], query[:, 2:4]
    )
    out = arrays[f"{prefix}/attention/output/dense/kernel"]
    np.testing.assert_array_equal(layer["attention"]["output"]["kernel"][1], out[2:4])
    inner = arrays[f"{prefix}/intermediate/dense/kernel"]
    np.testing.assert_array_equal(layer["intermediate"]["kernel"], inner)
    norm = arrays[f"{prefix}/attention/output/LayerNorm/beta"]
    np.testing.assert_array_equal(layer["attention_layer_norm"]["bias"], norm)


def test_classifier_of_google_answers_as_it_is(tmp_path, stand_in):
    stand_in(variables(heads=("",)))
    folder = make_folder(tmp_path)
    (answer,) = pretrained.load(folder).predict(["a b"])
    assert answer["scores"].keys() == {"LABEL_0", "LABEL_1", "LABEL_2"}
    ids, mask = np.array([[2, 5, 6, 3]]), np.ones((1, 4), int)
    logits = pretrained.load(folder).apply(ids, mask, 0 * mask)["logits"][0]
    shares = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose([*answer["scores"].values()], shares, atol=1e-6)


def test_released_checkpoint(tmp_path, stand_in):
    arrays = variables()
    stand_in(arrays)
    found = weights.read_weights(make_folder(tmp_path))
    assert found.architecture == "BertForPreTraining"
    assert found.left_over == ()
    assert_right(found, arrays)
    relation = arrays["cls/seq_relationship/output_weights"]
    kernel = found.params["next_sentence"]["kernel"]
    np.testing.assert_array_equal(kernel, relation.T)
    bias = found.params["masked_lm"]["bias"]
    np.testing.assert_array_equal(bias, arrays["cls/predictions/output_bias"])
    # Nothing is there twice or missing, and no slot of Adam's is taken.
    weights_only = {k: v for k, v in arrays.items() if k in shapes()}
    np.testing.assert_array_equal(numbers(found.params), numbers(weights_only))

    export.export_folder(found, None, tmp_path / "out", {})
    back = weights.read_weights(tmp_path / "out")
    np.testing.assert_array_equal(numbers(back.params), numbers(weights_only))
    assert_right(back, arrays)


@pytest.mark.parametrize(
    ("heads", "architecture", "labels"),
    [
        ((), "BertModel", ()),
        (("cls/predictions",), "BertForMaskedLM", ()),
        (("cls/squad",), "BertForQuestionAnswering", ()),
        (("",), "BertForSequenceClassification", ("LABEL_0", "LABEL_1", "LABEL_2")),
    ],
)
def test_google_checkpoints_that_were_fine_tuned(
    tmp_path, stand_in, heads, architecture, labels
):
    stand_in(variables(heads=heads))
    found = weights.read_weights(make_folder(tmp_path))
    assert (found.architecture, found.labels) == (architecture, labels)
    weights_only = {k: v for k, v in variables(heads=heads).items() if "adam" not in k}
    weights_only.pop("global_step")
    np.testing.assert_array_equal(numbers(found.params), numbers(weights_only))


def test_google_bert_base_is_read(shared_data, tmp_path):
    pytest.importorskip("tensorflow", reason="needs the google extra")
    folder = shared_data("weights/tf1-keras-bert-tiny/bert_config.json").parent
    found = weights.read_weights(folder)
    assert found.architecture == "BertForPreTraining" and found.left_over == ()
    assert len(jax.tree.leaves(found.params)) == 46
    bert = pretrained.load(folder)
    found = bert.encode(["All work and no play makes Jack a dull boy"])
    assert found["hidden_states"].shape == (1, 12, 4)
    assert found["pooled"].shape == (1, 4)
    tokenizer = weights.find_source(folder).tokenizer(found.config)
    export.export_folder(found, tokenizer, tmp_path / "out", {})
    back = pretrained.load(tmp_path / "out")
    again = back.encode(["All work and no play makes Jack a dull boy"])
    for name in ("hidden_states", "pooled"):
        np.testing.assert_array_equal(again[name], found[name])


def test_tensorflow_reads_what_it_wrote(tmp_path):
    tensorflow = pytest.importorskip("tensorflow", reason="needs the google extra")
    tf = tensorflow.compat.v1
    folder = make_folder(tmp_path)
    arrays = variables()
    with tensorflow.Graph().as_default(), tf.Session() as session:
        tf.disable_resource_variables()
        for name, value in arrays.items():
            tf.get_variable(name, initializer=value)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(
            session, str(folder / "bert_model.ckpt"), write_meta_graph=False
        )
    found = weights.read_weights(folder)
    assert_right(found, arrays)
    weights_only = {k: v for k, v in arrays.items() if k in shapes()}
    np.testing.assert_array_equal(numbers(found.params), numbers(weights_only))


def test_checkpoint_without_a_part_or_tensorflow(tmp_path, monkeypatch):
    folder = make_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    line = error_line(weights.read_weights, folder)
    assert re.search(r"pip install.*\[google\]", line)
    (folder / "bert_model.ckpt.data-00000-of-00001").unlink()
    line = error_line(weights.read_weights, folder)
    assert re.search("one checkpoint is required.*found bert_model.ckpt.index", line)
