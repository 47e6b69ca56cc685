"""ONNX graphs in ONNX Runtime, against the models that they are of."""

import dataclasses
import logging
from unittest import mock

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import main
from bert_jax.config import command_line
from bert_jax.convert import export, onnx_graph, weights
from bert_jax.convert.layout import Weights
from bert_jax.convert.sentence_transformers import TextVectors
from bert_jax.models.heads import init_model
from bert_jax.registry import FAMILIES
from tests.micro import error_line, initial_params, small_config

PIECES, POSITIONS, HIDDEN, LABELS = 50, 24, 32, 3
BATCH, LENGTH = "batch_size", "sequence_length"
BERTS = ("bert", "roberta", "distilbert", "mpnet")
# The end of each architecture's name, and its outputs with their last axes.
HEADS = {
    "Model": {"last_hidden_state": (BATCH, LENGTH, HIDDEN)},
    "ForMaskedLM": {"logits": (BATCH, LENGTH, PIECES)},
    "ForQuestionAnswering": dict.fromkeys(
        ("start_logits", "end_logits"), (BATCH, LENGTH)
    ),
    "ForTokenClassification": {"logits": (BATCH, LENGTH, LABELS)},
    "ForSequenceClassification": {"logits": (BATCH, LABELS)},
}
CASES = [(family, end) for family in BERTS for end in HEADS]
CASES += [("xlm_roberta", "ForMaskedLM"), ("bert", "ForPreTraining")]
QUICK = [("bert", "ForSequenceClassification"), ("mpnet", "ForMaskedLM")]


@pytest.fixture(scope="module")
def onnxruntime():
    pytest.importorskip("onnx", reason="needs the onnx extra")
    return pytest.importorskip("onnxruntime", reason="needs the onnx extra")


def random_weights(family="bert", end="Model", **fields):
    """Makes a model with loud weights, whose biases are not 0."""
    known = FAMILIES[family].layout.architectures
    name = next(name for name in known if name.endswith(end))
    fields = {"max_position_embeddings": POSITIONS, **fields}
    if not FAMILIES[family].has_segments:
        fields["type_vocab_size"] = 1
    config = small_config(architecture=family, vocab_size=PIECES, **fields)
    heads = tuple({*known[name]} - {"pooler"})
    module = FAMILIES[family].with_heads(config, heads, labels=LABELS)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: np.float32(x + 0.2 * rng.normal(size=x.shape)),
        initial_params(lambda key: init_model(module, key)),
    )
    labels = tuple("abc") if "Classification" in end else ()
    return Weights(config, params, name, labels)


def batches(family):
    """Yields columns of rows padded on the right and on the left, of one token, and of
    every position."""
    pad = max(0, FAMILIES[family].layout.first_position - 1)
    rng = np.random.default_rng(1)
    for rows, length, padding in ((3, 9, (0, 4, 8)), (1, 1, (0,)), (2, POSITIONS, ())):
        ids = rng.integers(5, PIECES, (rows, length))
        mask, segments = np.ones_like(ids), np.zeros_like(ids)
        for row, count in enumerate(padding):
            ids[row, length - count :], mask[row, length - count :] = pad, 0
        if FAMILIES[family].has_segments:
            segments[:, length // 2 :] = 1
        yield ids, mask, segments
        if any(padding):
            yield ids[:, ::-1].copy(), mask[:, ::-1].copy(), segments


def session_of(onnxruntime, path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def run(session, batch):
    """Returns a graph's outputs by name."""
    columns = zip(("input_ids", "attention_mask", "token_type_ids"), batch, strict=True)
    known = {x.name for x in session.get_inputs()}
    inputs = {name: x.astype(np.int64) for name, x in columns if name in known}
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def assert_close(found, expected):
    assert (found.dtype, found.shape) == (np.float32, expected.shape)
    limit = 1e-5 * abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


@pytest.mark.parametrize(
    ("family", "end"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in CASES
    ],
)
def test_outputs_are_the_models(onnxruntime, family, end, tmp_path):
    made = random_weights(family, end)
    export.export_folder(made, None, tmp_path / "out", {}, onnx="float32")
    assert [x.name for x in (tmp_path / "out" / "onnx").iterdir()] == ["model.onnx"]
    session = session_of(onnxruntime, tmp_path / "out" / "onnx" / "model.onnx")
    names = ["input_ids", "attention_mask"]
    names += ["token_type_ids"] * FAMILIES[family].has_segments
    inputs = [(x.name, x.type, x.shape) for x in session.get_inputs()]
    assert inputs == [(name, "tensor(int64)", [BATCH, LENGTH]) for name in names]
    outputs = {x.name: (*x.shape,) for x in session.get_outputs()}
    assert outputs == HEADS.get(end, HEADS["ForMaskedLM"])

    model = bert_jax.load(tmp_path / "out")
    for batch in batches(family):
        expected = model.apply(*batch)
        expected["last_hidden_state"] = expected["hidden_states"][-1]
        if "masked_lm_logits" in expected:
            expected["logits"] = expected["masked_lm_logits"]
        for name, found in run(session, batch).items():
            assert_close(found, np.asarray(expected[name]))


@pytest.mark.parametrize("act", ["gelu_tanh", "relu"])
def test_activations(onnxruntime, act, tmp_path):
    made = random_weights(end="ForMaskedLM", hidden_act=act)
    export.export_folder(made, None, tmp_path / "out", {}, onnx="float32")
    session = session_of(onnxruntime, tmp_path / "out" / "onnx" / "model.onnx")
    batch = next(batches("bert"))
    expected = bert_jax.load(tmp_path / "out").apply(*batch)["masked_lm_logits"]
    assert_close(run(session, batch)["logits"], np.asarray(expected))


@pytest.mark.parametrize("pooling", ["mean_all", "cls", "max", "cls+mean_all"])
@pytest.mark.parametrize("dense", [(), ("7:tanh", "5:identity")])
def test_vectors_of_texts(onnxruntime, pooling, dense, tmp_path):
    rng, size = np.random.default_rng(2), HIDDEN * (1 + pooling.count("+"))
    made, layers = random_weights(), {}
    for index, (inputs, outputs) in enumerate([(size, 7), (7, 5)][: len(dense)]):
        kernel, bias = rng.normal(size=(inputs, outputs)), rng.normal(size=outputs)
        both = {"kernel": np.float32(kernel), "bias": np.float32(bias)}
        layers[f"linear_{index}"] = both
    vectors = TextVectors(pooling, dense, bool(dense), POSITIONS)
    params = {**made.params, **({"dense": layers} if dense else {})}
    made = dataclasses.replace(made, params=params, vectors=vectors)
    export.export_folder(made, None, tmp_path / "out", {}, onnx="float32")
    session = session_of(onnxruntime, tmp_path / "out" / "onnx" / "model.onnx")

    ids, mask, segments = next(batches("bert"))
    found = run(session, (ids, mask, segments))
    rows = [x[:n] for x, n in zip(found["last_hidden_state"], mask.sum(1), strict=True)]
    pools = {"mean_all": lambda x: x.mean(0), "cls": lambda x: x[0]}
    pools["max"] = lambda x: x.max(0)
    modes = pooling.split("+")
    expected = np.stack([np.concatenate([pools[m](x) for m in modes]) for x in rows])
    for layer, act in zip(layers.values(), (np.tanh, np.asarray), strict=False):
        expected = act(expected @ layer["kernel"] + layer["bias"])
    if dense:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_close(found["sentence_embedding"], expected)
    (shape,) = [x.shape for x in session.get_outputs() if x.name[0] == "s"]
    assert shape == [BATCH, expected.shape[1]]


def test_weights_in_a_file_of_their_own(onnxruntime, tmp_path, monkeypatch):
    made, batch = random_weights(), next(batches("bert"))
    monkeypatch.setattr(onnx_graph, "_MAX_BYTES", 1000)
    for name in ("apart", "whole"):
        export.export_folder(made, None, tmp_path / name, {}, onnx="float32")
        monkeypatch.undo()
    files = [*(tmp_path / "apart" / "onnx").iterdir()]
    assert sorted(x.name for x in files) == ["model.onnx", "model.onnx_data"]
    apart, whole = (
        run(session_of(onnxruntime, tmp_path / name / "onnx" / "model.onnx"), batch)
        for name in ("apart", "whole")
    )
    np.testing.assert_array_equal(
        apart["last_hidden_state"], whole["last_hidden_state"]
    )


def test_int8_is_smaller_and_almost_the_same(onnxruntime, tmp_path, caplog):
    import onnx

    made = random_weights("mpnet", "ForMaskedLM")
    with caplog.at_level(logging.WARNING):
        export.export_folder(made, None, tmp_path / "out", {}, onnx="int8")
    assert not caplog.records
    files = [tmp_path / "out" / "onnx" / f"model{x}.onnx" for x in ("", "_quantized")]
    assert sorted(files) == sorted((tmp_path / "out" / "onnx").iterdir())
    kinds = [node.op_type for node in onnx.load(files[1]).graph.node]
    assert kinds.count("MatMulInteger") == 2 * 6 + 1  # of the layers and the head
    batch = next(batches("mpnet"))
    exact, found = (run(session_of(onnxruntime, x), batch)["logits"] for x in files)
    error = np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))
    assert 1e-4 < error < 0.05


@pytest.mark.slow
def test_flag_and_python_write_the_same(onnxruntime, plain, tmp_path, one_device):
    flags = [f"--workdir={plain}", "--mode=export", f"--output={tmp_path / 'flag'}"]
    assert main.main([*flags, "--onnx=float32"]) == 0
    bert_jax.load(plain).save(tmp_path / "python", onnx="float32")
    by_flag, by_python = (
        tmp_path / x / "onnx" / "model.onnx" for x in ("flag", "python")
    )
    assert by_flag.read_bytes() == by_python.read_bytes()


@pytest.mark.parametrize(
    ("made", "dtype", "why"),
    [
        (("electra", "Model"), "int8", "must be of one of these families: bert, "),
        (("bert", "ForMultipleChoice"), "int8", "BertForMultipleChoice has no graph"),
        (("bert", "Model"), "int4", "must be one of float32, int8"),
    ],
)
def test_model_without_a_graph(made, dtype, why, tmp_path):
    model = random_weights(*made)
    line = error_line(
        lambda: export.export_folder(model, None, tmp_path / "out", {}, onnx=dtype)
    )
    assert line.startswith(f"--onnx={dtype}: ") and why in line
    assert not [*tmp_path.iterdir()]


def test_left_to_right_has_no_graph():
    model = random_weights(end="ForMaskedLM", causal=True)
    line = error_line(onnx_graph.check, model, "float32")
    assert line == "--onnx=float32: a left-to-right model has no graph"


def test_packages_are_missing(make_folder, tmp_path):
    source = weights.find_source(make_folder())
    with mock.patch("importlib.util.find_spec", lambda name: None):
        line = error_line(lambda: source.export(tmp_path / "out", onnx="float32"))
    needed = "needs onnx and onnxruntime: pip install 'bert-jax[onnx]'"
    assert line == f"--onnx=float32: {needed}"
    assert not (tmp_path / "out").exists()


def test_flag_is_of_export():
    line = error_line(command_line.parse_flags, ["--mode=train", "--onnx=int8"])
    assert line == "--onnx=int8: is for --mode=export"
    line = error_line(command_line.parse_flags, ["--mode=export", "--onnx=int4"])
    assert "'float32', 'int8'" in line
