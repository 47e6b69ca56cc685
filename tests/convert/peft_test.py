"""Adapters that PEFT saved, against PEFT where it is there, and a formula."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.convert import weights
from bert_jax.errors import UserError

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 40}
BERT = "Bert", SMALL | {"num_labels": 3}
KINDS = {
    "bert": (*BERT, "ForSequenceClassification", ["query", "value"]),
    "all": (*BERT, "ForTokenClassification", ["query", "key", "value", "dense"]),
    "roberta": (
        *("Roberta", BERT[1] | {"type_vocab_size": 1}),
        *("ForSequenceClassification", ["query", "value"]),
    ),
    "modernbert": (
        *("ModernBert", BERT[1] | {"pad_token_id": 0}),
        *("ForSequenceClassification", ["Wqkv", "Wo"]),
    ),
    "gpt": (
        *("OpenAIGPT", {"vocab_size": 100, "n_positions": 40, "n_embd": 32}),
        *("LMHeadModel", ["c_attn", "c_proj"]),
    ),
}
SMALL_GPT = {"n_layer": 2, "n_head": 2}
TASKS = {"ForSequenceClassification": "SEQ_CLS", "ForTokenClassification": "TOKEN_CLS"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rank_scaled"), [*((name, False) for name in KINDS), ("bert", True)]
)
def test_read_adapter_computes_as_peft(
    name, rank_scaled, tmp_path, torch, transformers, monkeypatch
):
    peft = pytest.importorskip("peft", reason="not among the extras")
    family, sizes, head, targets = KINDS[name]
    sizes = sizes | SMALL_GPT if name == "gpt" else sizes
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes)
    kind = getattr(transformers, f"{family}{head}")
    kind(config).save_pretrained(tmp_path / "base")
    given = {"r": 4, "lora_alpha": 12, "target_modules": targets}
    given |= {"task_type": TASKS.get(head), "use_rslora": rank_scaled}
    model = kind.from_pretrained(tmp_path / "base")
    model = peft.get_peft_model(model, peft.LoraConfig(**given)).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(tmp_path / "adapter")
    ids = np.random.default_rng(0).integers(5, 100, (2, 9))
    with torch.no_grad():
        expected = model(input_ids=torch.tensor(ids)).logits.numpy()
    read = bert_jax.load(tmp_path / "adapter")
    found = read.apply(ids, np.ones_like(ids), np.zeros_like(ids))
    logits = found.get("logits", found.get("lm_logits"))
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.fixture
def adapter(plain, tmp_path):
    """A folder in PEFT's form, of the exported model beside it."""
    weights.find_source(plain).export(tmp_path / "base")
    rng = np.random.default_rng(0)
    module = "base_model.model.bert.encoder.layer.0.attention.self.query"
    tensors = {
        f"{module}.lora_A.weight": rng.normal(size=(2, 32)).astype(np.float32),
        f"{module}.lora_B.weight": rng.normal(size=(32, 2)).astype(np.float32),
    }
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    fields = {"peft_type": "LORA", "base_model_name_or_path": str(tmp_path / "base")}
    fields |= {"r": 2, "lora_alpha": 6, "task_type": None}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    return folder


def change(folder, fields=None, tensors=None):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (fields or {})))
    saved = load_file(folder / "adapter_model.safetensors") | (tensors or {})
    save_file(saved, folder / "adapter_model.safetensors")


@pytest.mark.slow
def test_read_adapter_is_merged_into_its_base(adapter, plain):
    base, read = (weights.read_weights(x) for x in (plain, adapter))
    before, after = (
        each.params["bert"]["encoder"]["layer_0"]["attention"] for each in (base, read)
    )
    a, b = load_file(adapter / "adapter_model.safetensors").values()
    product = 3.0 * (np.float64(b) @ a).T.reshape(32, 2, 16)
    changed = after["query"]["kernel"] - before["query"]["kernel"]
    np.testing.assert_allclose(changed, product, atol=1e-5)
    np.testing.assert_array_equal(after["key"]["kernel"], before["key"]["kernel"])
    assert read.architecture == "BertForPreTraining" and not read.provenance


MODULE = "base_model.model.bert.encoder.layer.0.attention.self.query"


@pytest.mark.slow
def test_read_adapter_has_biases_and_a_matrix_that_is_no_longer_tied(adapter):
    bias, words = f"{MODULE}.base_layer.bias", "bert.embeddings.word_embeddings.weight"
    before = weights.read_weights(adapter)
    table = before.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    own = {bias: np.arange(32, dtype=np.float32)}
    change(adapter, {"bias": "all"}, own)
    query = weights.read_weights(adapter).params["bert"]["encoder"]["layer_0"]
    found = query["attention"]["query"]["bias"]
    np.testing.assert_array_equal(found.ravel(), own[bias])
    change(adapter, {}, {f"base_model.model.{words}": table + 1})
    after = weights.read_weights(adapter)
    found = after.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    np.testing.assert_array_equal(found, table + 1)
    assert "masked_lm" not in after.params
    assert any("differs from" in name for name in after.left_over)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "tensors", "message"),
    [
        ({"use_dora": True}, {}, "only LoRA with one lora_alpha can .* use_dora=True"),
        ({"init_lora_weights": "pissa"}, {}, "init_lora_weights='pissa'; merge it"),
        ({"of_tomorrow": {"x": 1}}, {}, "of_tomorrow={'x': 1}; merge it"),
        (
            {},
            {"base_model.model.bert.embeddings.tokens_delta": np.ones(2, np.float32)},
            "tokens_delta is not a part of|tokens_delta has no place",
        ),
        (
            {},
            {f"{MODULE}.lora_A.weight": np.ones((2, 16), np.float32)},
            r"query.weight of the shape \(32, 16\), which is \(32, 32\) in ",
        ),
        ({"base_model_name_or_path": "."}, {}, "no weights"),
    ],
)
def test_adapters_that_cannot_be_read(adapter, fields, tensors, message):
    change(adapter, fields, tensors)
    with pytest.raises(UserError, match=message) as found:
        weights.read_weights(adapter)
    assert "\n" not in str(found.value)
