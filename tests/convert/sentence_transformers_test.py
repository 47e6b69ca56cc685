"""Vectors of a sentence-transformers folder, against its arithmetic in NumPy."""

import dataclasses
import json
import re
import shutil
from unittest import mock

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import bert_jax
from bert_jax import modes, tokenization
from bert_jax.convert import export, weights
from bert_jax.convert.layout import Weights
from bert_jax.convert.sentence_transformers import TextVectors
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.heads import init_model
from bert_jax.tokenization.byte_level import ANGLED, BRACKETED
from bert_jax.tokenization.wordpiece import WORDPIECE
from bert_jax.training import run_config
from tests.micro import bert_config, error_line, initial_params

TEXT = """the quick brown fox jumps over the lazy dog while seven cats watch it go
the dog was quick and the fox was lazy so the cats watched them both going home"""
TEXTS = ["the dog", "Seven CATS watch it", "", "home", TEXT]
FAMILIES = {
    "Bert": (WORDPIECE, {}),
    "Roberta": (ANGLED, {"type_vocab_size": 1, "max_position_embeddings": 34}),
    "ModernBert": (BRACKETED, {}),
}
HIDDEN, POSITIONS = 16, 32
SIZES = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 24, "max_position_embeddings": POSITIONS}


@pytest.fixture
def make(torch, transformers, tmp_path):
    """Makes a folder of an encoder and modules. Returns it with the vectors of a text's
    tokens as `transformers` computes them."""

    def folder_of(modules, family="Bert", lowercase=True, inner="", **files):
        kind, own = FAMILIES[family]
        folder = tmp_path / "folder"
        ours = kind.train([TEXT, TEXT.upper()] * 4, 320, lowercase=lowercase)
        special = tokenization.special_ids(ours)._asdict()
        ids = {f"{name}_token_id": number for name, number in special.items()}
        fields = {"vocab_size": ours.get_vocab_size(), **ids, **SIZES, **own}
        torch.manual_seed(0)
        kind = getattr(transformers, f"{family}Config")
        config = kind(**fields, initializer_range=0.5)
        model = getattr(transformers, f"{family}Model")(config).eval()
        model.save_pretrained(folder / inner)
        tokenization.save_tokenizer(ours, folder / inner)
        named = [{"idx": 0, "name": "0", "path": inner, "type": TYPE + "Transformer"}]
        for index, (kind, content) in enumerate(modules, 1):
            path = f"{index}_{kind}"
            named.append({"idx": index, "name": "", "path": path, "type": TYPE + kind})
            (folder / path).mkdir()
            if content is not None:
                (folder / path / "config.json").write_text(json.dumps(content))
        (folder / "modules.json").write_text(json.dumps(named))
        for name, content in files.items():
            (folder / inner / f"{name}.json").write_text(json.dumps(content))

        def hidden(text, length=POSITIONS):
            first, *inside, last = ours.encode(text).ids
            kept = torch.tensor([[first, *inside[: length - 2], last]])
            with torch.no_grad():
                return model(kept).last_hidden_state[0].double().numpy()

        return folder, hidden

    return folder_of


TYPE = "sentence_transformers.models."
MODES = {
    "cls_token": lambda h: h[0],
    "max_tokens": lambda h: h.max(0),
    "mean_tokens": lambda h: h.mean(0),
}


def assert_close(found, expected):
    expected = np.stack(expected)
    assert (found.dtype, found.shape) == (np.float32, expected.shape)
    np.testing.assert_allclose(found, expected, atol=1e-5 * abs(expected).max(), rtol=0)


def assert_close_everywhere(folder, expected):
    """Compares the vectors of `sentences` and `predict`, of a folder and its export."""
    out = folder.parent / "out"
    weights.find_source(folder).export(out)
    for path in (folder, out):
        model = bert_jax.load(path)
        assert_close(model.sentences(TEXTS), expected)
        rows = model.predict(TEXTS)
        assert_close(np.float32([row["vector"] for row in rows]), expected)


@pytest.mark.parametrize("mode", MODES)
def test_pooling_is_that_of_the_library(make, mode):
    flags = {f"pooling_mode_{name}": name == mode for name in MODES}
    folder, hidden = make([("Pooling", {"word_embedding_dimension": HIDDEN, **flags})])
    assert_close_everywhere(folder, [MODES[mode](hidden(text)) for text in TEXTS])


@pytest.mark.parametrize("family", FAMILIES)
def test_mean_and_length_1_of_every_family(make, family):
    modules = [("Pooling", {"pooling_mode": "mean"}), ("Normalize", None)]
    folder, hidden = make(modules, family)
    pooled = [hidden(text).mean(0) for text in TEXTS]
    found = bert_jax.load(folder).sentences(TEXTS)
    assert_close(found, [x / np.linalg.norm(x) for x in pooled])


def test_poolings_are_joined_in_one_order(make):
    fields = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    folder, hidden = make([("Pooling", fields)])
    states = [hidden(text) for text in TEXTS]
    expected = [np.concatenate([h[0], h.mean(0)]) for h in states]
    assert_close_everywhere(folder, expected)


@pytest.mark.parametrize(
    ("act", "function", "bias"),
    [
        ("torch.nn.modules.activation.Tanh", np.tanh, True),
        ("torch.nn.modules.linear.Identity", lambda x: x, False),
        ("torch.nn.modules.activation.ReLU", lambda x: np.maximum(x, 0), True),
    ],
)
def test_dense_layer(make, act, function, bias):
    fields = {"in_features": HIDDEN, "out_features": 5, "bias": bias}
    modules = [
        ("Pooling", {"pooling_mode": "cls"}),
        ("Dense", fields),
        ("Normalize", {}),
    ]
    fields["activation_function"] = act
    folder, hidden = make(modules)
    random = np.random.default_rng(0)
    weight = random.normal(size=(5, HIDDEN)).astype(np.float32)
    tensors = {"linear.weight": weight}
    if bias:
        tensors["linear.bias"] = random.normal(size=5).astype(np.float32)
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    add = tensors.get("linear.bias", 0)
    expected = [function(weight @ hidden(text)[0] + add) for text in TEXTS]
    expected = [x / np.linalg.norm(x) for x in expected]
    assert_close_everywhere(folder, expected)
    found = bert_jax.load(folder).sentences(TEXTS, size=3)
    assert_close(found, [x[:3] / np.linalg.norm(x[:3]) for x in expected])


MEAN = [("Pooling", {"pooling_mode_mean_tokens": True})]


@pytest.mark.parametrize(
    "files",
    [
        {"sentence_bert_config": {"max_seq_length": 9, "do_lower_case": False}},
        {"tokenizer_config": {"model_max_length": 9}},
    ],
)
def test_long_texts_are_cut_where_the_folder_says(make, files):
    folder, hidden = make(MEAN, **files)
    expected = [hidden(text, 9).mean(0) for text in TEXTS]
    assert_close_everywhere(folder, expected)
    assert abs(hidden(TEXT, 9).mean(0) - hidden(TEXT).mean(0)).max() > 0.01


def test_texts_are_lowercased_and_prompted_where_the_folder_says(make):
    prompts = {"prompts": {"query": "the dog: "}, "default_prompt_name": "query"}
    folder, hidden = make(
        MEAN,
        lowercase=False,
        sentence_bert_config={"max_seq_length": None, "do_lower_case": True},
        config_sentence_transformers=prompts,
    )
    expected = [hidden("the dog: " + text.lower()).mean(0) for text in TEXTS]
    assert_close_everywhere(folder, expected)
    prompted = {"query": "the dog: ", "home ": "home ", "": "", "document": ""}
    for prompt, text in prompted.items():
        found = bert_jax.load(folder).sentences(TEXTS, prompt=prompt)
        assert_close(found, [hidden(text + x.lower()).mean(0) for x in TEXTS])

    line = error_line(bert_jax.load(folder).sentences, TEXTS, prompt="qury")
    assert "no prompt of that name, but query, document" in line


def test_training_takes_the_modules_of_the_folder(make, monkeypatch):
    folder, _ = make([("Pooling", {"pooling_mode": "cls"})], family="Bert")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    for fields, expected in (
        ({}, ("cls", False, 9)),
        ({"task.pooling": "max", "task.max_seq_length": 7}, ("max", False, 7)),
        ({"task.pooling": "mean_all", "task.normalized": True}, ("mean_all", True, 9)),
    ):
        train = mock.Mock(side_effect=ZeroDivisionError)
        monkeypatch.setattr(modes, "train", train)
        fields = {"init_from": str(folder), **fields}
        config = bert_jax.make_config("finetune/embeddings", fields)
        with pytest.raises(ZeroDivisionError):
            bert_jax.fit(config, folder / "none")
        given, _, chosen = train.call_args.args
        none = folder.parent / "none"
        task = run_config.config_of(none, given, chosen, is_inference=False).task
        assert (task.pooling, task.normalized, task.max_seq_length) == expected


def test_adapter_has_modules_of_its_own(make):
    folder, hidden = make(MEAN)
    adapter = folder.parent / "adapter"
    kept_out = shutil.ignore_patterns("config.json", "model.safetensors")
    shutil.copytree(folder, adapter, ignore=kept_out)
    (adapter / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    module = "base_model.model.encoder.layer.0.attention.self.query"
    ranks = {"A": np.ones((1, HIDDEN)), "B": np.zeros((HIDDEN, 1))}
    save_file(
        {f"{module}.lora_{x}.weight": y.astype(np.float32) for x, y in ranks.items()},
        adapter / "adapter_model.safetensors",
    )
    fields = {"peft_type": "LORA", "base_model_name_or_path": str(folder)}
    (adapter / "adapter_config.json").write_text(json.dumps(fields))
    found = bert_jax.load(adapter).sentences(TEXTS)
    assert_close(found, [hidden(text)[0] for text in TEXTS])


def test_encoder_of_older_versions_is_in_a_folder_inside(make):
    folder, hidden = make(MEAN, inner="0_Transformer")
    model = bert_jax.load(folder)
    assert_close(model.sentences(TEXTS), [hidden(text).mean(0) for text in TEXTS])
    assert model.encode(["home"])["hidden_states"].shape == (1, 3, HIDDEN)
    weights.find_source(folder).export(folder.parent / "out")
    again = bert_jax.load(folder.parent / "out").encode(["home"])
    assert again["hidden_states"].shape == (1, 3, HIDDEN)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([*MEAN, ("CNN", {})], "3_CNN|2_CNN: is a CNN"),
        ([("Pooling", {"pooling_mode": "first_last"})], r"pools by \['first_last'\]"),
        ([*MEAN, ("Dense", {})], "has no model.safetensors"),
    ],
)
def test_modules_that_cannot_be_computed_are_refused(make, modules, message):
    folder, _ = make(modules)
    model = bert_jax.load(folder)
    assert re.search(message, error_line(model.sentences, TEXTS))
    assert model.sentences(TEXTS[:1], layer=-1).shape == (1, HIDDEN)


def test_export_of_text_vectors_has_its_modules(tmp_path):
    ours = WORDPIECE.train([TEXT] * 4, 200, lowercase=True)
    config = bert_config(vocab_size=ours.get_vocab_size(), **SIZES)
    params = initial_params(lambda key: init_model(BertWithHeads(config), key))
    model = Weights(config, jax.tree.map(np.asarray, params), "BertModel")
    ids = np.zeros((len(TEXTS), 12), np.int32)
    mask = np.zeros_like(ids)
    for row, text in enumerate(TEXTS):
        first, *inside, last = ours.encode(text).ids
        cut = [first, *inside[:10], last]
        ids[row, : len(cut)], mask[row, : len(cut)] = cut, 1
    apply = jax.jit(BertWithHeads(config).apply)
    outputs = apply({"params": params}, ids, mask, np.zeros_like(ids))
    states = np.asarray(outputs["hidden_states"][-1], np.float64)
    states = [row[own.astype(bool)] for row, own in zip(states, mask, strict=True)]
    means = [row.mean(axis=0) for row in states]
    for pooling, expected in {
        "mean_all": [mean / np.linalg.norm(mean) for mean in means],
        "cls": [row[0] for row in states],
    }.items():
        vectors = TextVectors(pooling, (), pooling == "mean_all", 12)
        folder = tmp_path / pooling
        given = dataclasses.replace(model, vectors=vectors)
        export.export_folder(given, ours, folder, {})
        found = bert_jax.load(folder).sentences(TEXTS)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    given = dataclasses.replace(model, vectors=vectors._replace(pooling="mean"))
    line = error_line(export.export_folder, given, ours, tmp_path / "other", {})
    assert "pools all tokens or" in line
    assert not (tmp_path / "other").exists()
