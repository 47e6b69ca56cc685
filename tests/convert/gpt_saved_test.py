"""GPT's folders as `transformers` saves them, and its tokenizer of our exports."""

import numpy as np
import pytest
from gpt_folders import CONFIG, finetuned, inputs, same_double_heads, tied, written
from safetensors.numpy import load_file

import bert_jax
from bert_jax.convert import export, weights
from families.gpt.layout import LAYOUT as GPT


def test_a_double_heads_folder_that_transformers_saved(tmp_path):
    torch = pytest.importorskip("torch", reason="needs the parity extra")
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    given = {k: v for k, v in CONFIG.items() if k != "architectures"}
    torch.manual_seed(0)
    config = transformers.OpenAIGPTConfig(**given)
    network = transformers.OpenAIGPTDoubleHeadsModel(config).eval()
    network.save_pretrained(tmp_path / "saved")
    names = load_file(tmp_path / "saved" / "model.safetensors").keys()
    assert len({"lm_head.weight", "transformer.tokens_embed.weight"} & names) == 1
    ids = inputs(6)[0].reshape(3, 2, 11)
    expected = network(torch.tensor(ids), mc_token_ids=torch.full((3, 2), 10))
    model = bert_jax.load(tmp_path / "saved")
    found = model.apply(ids, np.ones_like(ids), 0 * ids)
    same_double_heads(found, expected)


@pytest.mark.parametrize("head", [None, "sequence_classification"])
def test_a_special_token_s_name_in_a_text_is_text_for_transformers_too(tmp_path, head):
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    source, target = written(tmp_path / "source"), tmp_path / "export"
    ours = weights.read_tokenizer(source)
    model = finetuned(head, ("a", "b"), source) if head else weights.read(source)
    export.export(model, ours, target, {})
    ours.encode_special_tokens = True  # as tasks read texts
    other = transformers.AutoTokenizer.from_pretrained(target)
    for text in (
        "a <unk> dog",
        "the<unk>dog",
        "<unk>",
        "_start_ a _classify_",
        "\u2603",
    ):
        around = head is not None
        expected = ours.encode(text, add_special_tokens=around).ids
        assert other(text)["input_ids"] == expected, text
    other.save_pretrained(tmp_path / "again")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again("a <unk> dog") == other("a <unk> dog")


def head_alone(tensors):
    found = tied(tensors)
    del found["transformer.tokens_embed.weight"]
    return found


def test_the_tied_matrix_under_the_head_s_name_alone(tmp_path):
    one, two = (
        weights.read(written(tmp_path / name, change=change))
        for name, change in (("released", None), ("saved", head_alone))
    )
    assert two.left_over == ()
    for name, value in GPT.tensors(one).items():
        np.testing.assert_array_equal(value, GPT.tensors(two)[name])
