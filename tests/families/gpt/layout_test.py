"""Folders of openai-gpt in and out, against `transformers`."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import bert_jax
from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.convert import export, layout, weights
from bert_jax.families.gpt.layout import LAYOUT as GPT
from bert_jax.families.gpt.model import GptWithHeads
from bert_jax.families.gpt.vocabulary import BYTE_PAIRS
from bert_jax.training import run_config, setup, sharding
from bert_jax.workdir import folder as workdir
from tests.close import assert_close
from tests.micro import error_line

TEXT = "the quick brown fox jumps over the lazy dog while seven cats watch it go"
TEXT_CONFIG = "configs/finetune/text.py:recipe=tiny"
CONFIG = {"architectures": ["OpenAIGPTLMHeadModel"], "model_type": "openai-gpt"}
CONFIG |= {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4}
CONFIG |= {"n_positions": 24, "afn": "gelu", "layer_norm_epsilon": 1e-5}


def drawn(labels=0):
    """Tensors as released: names without a prefix, and each layer's mask."""
    rng = np.random.default_rng(0)
    shapes = {"tokens_embed.weight": (97, 32), "positions_embed.weight": (24, 32)}
    for layer in range(2):
        for name, shape in (
            *(("attn.c_attn", (32, 96)), ("attn.c_proj", (32, 32))),
            *(("mlp.c_fc", (32, 128)), ("mlp.c_proj", (128, 32))),
        ):
            shapes[f"h.{layer}.{name}.weight"] = shape
            shapes[f"h.{layer}.{name}.bias"] = shape[1:]
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{layer}.{norm}.{x}": (32,) for x in ("weight", "bias")}
        shapes[f"h.{layer}.attn.bias"] = (1, 1, 24, 24)
    if labels:
        shapes["score.weight"] = (labels, 32)
    numbers = {name: rng.normal(0, 0.2, shape) for name, shape in shapes.items()}
    return {name: array.astype(np.float32) for name, array in numbers.items()}


def written(path, fields=None, change=None, vocabulary_too=True):
    """Writes a folder, its tensors as `change` returns or leaves them."""
    path.mkdir()
    tensors = drawn()
    tensors = (change(tensors) or tensors) if change else tensors
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps({**CONFIG, **(fields or {})}))
    if vocabulary_too:
        learnt = BYTE_PAIRS.train([TEXT] * 2, 100, lowercase=True)
        learnt.model.save(str(path))
    return path


def inputs(rows=3, length=11):
    ids = np.random.default_rng(1).integers(0, 97, (rows, length))
    return ids, np.ones_like(ids), 0 * ids


def finetuned(head, labels, source):
    """As a run leaves it: the trunk of `source` and a head, its bias too."""
    found = weights.read_weights(source)
    rng = np.random.default_rng(2)
    outputs = max(1, len(labels))
    kernel, bias = rng.normal(size=(32, outputs)), rng.normal(size=outputs)
    own = {"kernel": kernel.astype(np.float32), "bias": bias.astype(np.float32)}
    is_choice = head == "multiple_choice"
    name = "DoubleHeadsModel" if is_choice else "ForSequenceClassification"
    name = f"OpenAIGPT{name}"
    return layout.Weights(found.config, {**found.params, head: own}, name, labels)


def tied(tensors):
    prefixed = {f"transformer.{name}": value for name, value in tensors.items()}
    head = tensors["tokens_embed.weight"].copy()
    return {**prefixed, "lm_head.weight": head}


def same_double_heads(found, expected):
    """Ours and torch's outputs of three examples of two endings are the same."""
    assert_close(found["logits"], expected.mc_logits.detach().numpy())
    ours = found["lm_logits"].reshape(3, 2, 11, -1)
    assert_close(ours, expected.logits.detach().numpy())


@pytest.fixture
def make(tmp_path):
    """Writes a folder of openai-gpt."""

    def folder(*args, **fields):
        path = tmp_path / f"folder_{len(list(tmp_path.iterdir()))}"
        return written(path, *args, **fields)

    return folder


def theirs(name, folder):
    torch = pytest.importorskip("torch", reason="needs the parity extra")
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32)
    return torch, transformers, model.eval()


@pytest.mark.slow
def test_released_folder_computes_what_torch_s_does(make):
    folder = make()
    model = bert_jax.load(folder)
    found = model.apply(*inputs())
    assert found["lm_logits"].shape == (3, 11, 100) and "pooled" not in found
    torch, _, network = theirs("OpenAIGPTLMHeadModel", folder)
    expected = network(torch.tensor(inputs()[0]), output_hidden_states=True)
    assert_close(found["lm_logits"][..., :97], expected.logits.detach().numpy())
    last = expected.hidden_states[-1].detach().numpy()
    assert_close(found["hidden_states"][-1], last)


def test_special_tokens_get_rows_always_the_same(make):
    folder = make()
    one, two = (weights.read_weights(folder) for _ in range(2))
    table = one.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    other = two.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    np.testing.assert_array_equal(table, other)
    assert table.shape == (100, 32) and one.left_over == ()
    np.testing.assert_array_equal(table[:97], drawn()["tokens_embed.weight"])
    assert 0.015 < table[97:].std() < 0.025
    tokenizer = weights.find_source(folder).tokenizer(one.config)
    assert tokenizer.encode("a dog").ids[0] == 97
    bare = weights.read_weights(make(vocabulary_too=False))
    assert bare.config.vocab_size == 97
    encoded = bert_jax.load(folder).encode(["the dog", "seven cats watch it"])
    assert encoded["tokens"][0][0] == "_start_"


def test_export_is_the_same_model_for_transformers_and_for_us(make, tmp_path):
    source, target = make(), tmp_path / "export"
    weights.find_source(source).export(target)
    names = {path.name for path in target.iterdir()}
    assert {"tokenizer.json", "config.json"} <= names
    assert "vocab.txt" not in names
    one, two = weights.read_weights(source), weights.read_weights(target)
    assert one.config == two.config and one.architecture == two.architecture
    for name, value in GPT.tensors(one).items():
        np.testing.assert_array_equal(value, GPT.tensors(two)[name], err_msg=name)
    torch, transformers, network = theirs("OpenAIGPTLMHeadModel", target)
    expected = network(torch.tensor(inputs()[0])).logits.detach().numpy()
    found = bert_jax.load(source).apply(*inputs())["lm_logits"]
    assert_close(found, expected)
    # A language model's tokenizer adds nothing: the text continues where it ends.
    tokenizer = transformers.AutoTokenizer.from_pretrained(target)
    ours = tokenization.load_folder_tokenizer(target)
    text = "Seven DOGS jump over the fox"
    assert tokenizer(text)["input_ids"] == ours.encode(text).ids[1:-1]


@pytest.mark.slow
def test_classifier_s_bias_is_in_the_last_layer_norm(make, tmp_path):
    labels = ("a", "b", "c")
    source, target = make(), tmp_path / "export"
    model = finetuned("sequence_classification", labels, source)
    tokenizer = weights.find_source(source).tokenizer()
    export.export_folder(model, tokenizer, target, {})
    _, transformers, network = theirs("OpenAIGPTForSequenceClassification", target)
    pieces = transformers.AutoTokenizer.from_pretrained(target)
    texts = ["the dog", "seven cats watch the lazy dog while it go"]
    given = pieces(texts, padding=True, return_tensors="pt")
    assert (given["input_ids"][0] == 97).sum() == 1
    expected = network(**given).logits.detach().numpy()
    assert network.config.id2label == dict(enumerate(labels))
    again = bert_jax.load(target)
    assert again.labels == labels
    module = jax.jit(GptWithHeads(model.config, again.heads, len(labels)).apply)
    for row, text in enumerate(texts):
        ids = np.array([tokenizer.encode(text).ids], np.int32)
        columns = ids, np.ones_like(ids), 0 * ids
        assert_close(again.apply(*columns)["logits"][0], expected[row])
        own = module({"params": model.params}, *columns)["logits"][0]
        assert_close(own, expected[row])


@pytest.mark.slow
def test_choices_are_torch_s_double_heads(make, tmp_path):
    source, target = make(), tmp_path / "export"
    model = finetuned("multiple_choice", (), source)
    export.export_folder(model, weights.find_source(source).tokenizer(), target, {})
    torch, _, network = theirs("OpenAIGPTDoubleHeadsModel", target)
    ids = inputs(6)[0].reshape(3, 2, 11)
    last = torch.full((3, 2), 10)
    expected = network(torch.tensor(ids), mc_token_ids=last)
    found = bert_jax.load(target).apply(ids, np.ones_like(ids), 0 * ids)
    same_double_heads(found, expected)


def untied(tensors):
    tensors["lm_head.weight"] = 1 + tensors["tokens_embed.weight"]


def head_alone(tensors):
    found = tied(tensors)
    del found["transformer.tokens_embed.weight"]
    return found


@pytest.mark.parametrize("change", [tied, head_alone])
def test_names_with_a_prefix_and_the_tied_matrix_twice_or_as_the_head_s(make, change):
    one, two = weights.read_weights(make()), weights.read_weights(make(change=change))
    assert two.left_over == ()
    for name, value in GPT.tensors(one).items():
        np.testing.assert_array_equal(value, GPT.tensors(two)[name])


@pytest.mark.parametrize(
    ("fields", "change", "message"),
    [
        ({"afn": "silu"}, None, "afn='silu'; supported are gelu"),
        (None, untied, "lm_head.weight differs from"),
    ],
)
def test_gpt_folder_that_is_wrong_is_one_line(make, fields, change, message):
    assert message in error_line(weights.read_weights, make(fields, change))


@pytest.mark.parametrize("is_inference", [False, True])
@pytest.mark.parametrize(
    ("spec", "source", "said"),
    [
        (TEXT_CONFIG, "gpt", "are a GPT's, and the config is"),
        (f"{TEXT_CONFIG},model=gpt", "bert", "are a BERT's, and"),
        ("configs/tiny.py", "gpt", "or --config=FILE:model=gpt"),
    ],
)
def test_weights_of_the_other_model_are_one_line(
    make, tmp_path, make_folder, spec, source, said, is_inference
):
    path = make() if source == "gpt" else make_folder()
    given = configuration.load_config(spec, [f"--config.init_from={path}"])
    asked = (tmp_path / "none", given, {"init_from": path})
    assert said in error_line(run_config.config_of, *asked, is_inference=is_inference)


def test_run_starts_from_a_released_folder(make, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na dog,yes\na cat,no\n")
    overrides = [f"--config.init_from={make()}", f"--config.task.train_file={rows}"]
    overrides.append("--config.task.max_seq_length=16")
    spec = "configs/finetune/text.py:model=gpt"
    given = configuration.load_config(spec, overrides)
    config = run_config.config_of(tmp_path / "run", given, {}, is_inference=False)
    assert config.model.vocab_size == 100 and config.model.hidden_size == 32
    task = setup.build_task(config, tmp_path / "run", from_data=True)
    assert not workdir.has_config(tmp_path / "run")
    mesh = sharding.make_mesh(task.config, ())
    abstract = sharding.abstract_arrays(task.param_shapes, mesh)
    params, report = setup.init_weights(task, abstract)
    assert report.left_over == ()
    assert report.missing == ("sequence_classification",)
    kernel = params["bert"]["encoder"]["layer_1"]["attention"]["key"]["kernel"]
    expected = drawn()["h.1.attn.c_attn.weight"][:, 32:64].reshape(32, 4, 8)
    np.testing.assert_array_equal(jax.device_get(kernel), expected)
