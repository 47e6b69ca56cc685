"""The same weights in `transformers`, live: outputs, gradients, exports."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax import pretrained, tokenization
from bert_jax.convert import weights
from bert_jax.tokenization.byte_level import BRACKETED
from tests.families.modernbert.modernbert_folders import (
    ARCHITECTURES,
    drawn,
    fields,
    inputs,
    written,
)
from tests.parity import check_outputs, check_same, outputs_of, relevant

CASES = [*((name, "deep") for name in ARCHITECTURES), ("ModernBertForMaskedLM", "wide")]
# It reads the first token, where the deep one reads the mean.
CASES.append(("ModernBertForSequenceClassification", "wide"))


@pytest.fixture
def both(torch, transformers, tmp_path):
    """A model of `transformers` that read a folder of ours, and inputs for it."""

    def make(architecture, size, length=0, **more):
        given = fields(architecture, size, **more)
        loudness = {"base": 0.3, "deep": 0.5}.get(size, 1.0)
        folder = written(tmp_path / "theirs", given, loudness=loudness)
        kind = getattr(transformers, architecture)
        model = kind.from_pretrained(folder, attn_implementation="eager").eval()
        return model, inputs(given, length)

    return make


@pytest.mark.parametrize(("architecture", "size"), CASES)
def test_outputs_and_gradients(both, tmp_path, architecture, size):
    model, batch = both(architecture, size)
    bert = pretrained.load(tmp_path / "theirs")
    check_same(bert, model, outputs_of(model, batch), batch)


@pytest.mark.slow
def test_outputs_at_2048_tokens(torch, both, tmp_path):
    few = {"num_hidden_layers": 2}  # one of which sees the whole text
    model, batch = both("ModernBertForMaskedLM", "base", 2048, **few)
    batch = {name: value[2:3] for name, value in batch.items()}
    with torch.no_grad():
        theirs = outputs_of(model, batch)
    ours, mask = (
        pretrained.load(tmp_path / "theirs").apply(*batch.values()),
        "input_mask",
    )
    ours["hidden_states"] = jnp.stack(ours["hidden_states"])
    found = {k: relevant(k, v.numpy(), batch[mask]) for k, v in theirs.items()}
    check_outputs(ours, found, batch[mask])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_export_is_the_same_to_the_bit(tmp_path, architecture):
    given = fields(architecture, "deep", vocab_size=300)
    folder = written(tmp_path / "theirs", given)
    tokenization.save_tokenizer(_vocabulary(given["vocab_size"]), folder)
    weights.find_source(folder).export(tmp_path / "ours")
    expected, found = drawn(given), load_file(tmp_path / "ours" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name
    again = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert again["local_attention"] == given["local_attention"]
    assert again["layer_types"][:3] == [
        *("full_attention", "sliding_attention", "full_attention")
    ]


def test_pipeline_opens_an_export(transformers, tmp_path):
    given = fields("ModernBertForMaskedLM", "deep", vocab_size=300)
    folder = written(tmp_path / "theirs", given)
    tokenization.save_tokenizer(_vocabulary(300), folder)
    weights.find_source(folder).export(tmp_path / "ours")
    fills = transformers.pipeline("fill-mask", str(tmp_path / "ours"))
    theirs = fills("the quick [MASK] jumps")
    (ours,) = pretrained.load(tmp_path / "ours").fill_mask("the quick [MASK] jumps")
    assert [guess["token"] for guess in theirs] == [guess["id"] for guess in ours]
    scores = [guess["score"] for guess in theirs]
    found = [guess["probability"] for guess in ours]
    np.testing.assert_allclose(found, scores, rtol=1e-4)


def _vocabulary(size):
    text = "the quick brown fox jumps over the lazy dog while seven cats watch it go"
    return BRACKETED.train([text] * 2, size, lowercase=False)
