"""RoBERTa against transformers': vectors, logits, gradients, folders."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax import tokenization
from bert_jax.convert import weights
from bert_jax.families.roberta.layout import LAYOUT
from bert_jax.tokenization.byte_level import ANGLED
from tests.micro import error_line
from tests.parity import check_export, check_same, outputs_of

ARCHITECTURES = sorted(LAYOUT.architectures)
NAMES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
SIZES = {
    "tiny": (2, 32, 2, 48),
    "base": (1, 768, 12, 3072),  # the published one, except layers, tokens, positions
}
TEXT = """the quick brown fox jumps over the lazy dog while seven cats watch it go
the dog was quick and the fox was lazy so the cats watched them both going home"""
PIECES = 300


def made(architecture, size="tiny", **fields):
    """A model of `transformers`, and its config. Skips without the extra."""
    torch = pytest.importorskip("torch", reason="needs the parity extra")
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    own = {**dict(zip(NAMES, SIZES[size], strict=True)), "vocab_size": PIECES}
    own |= {"max_position_embeddings": 42, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    own["num_labels"] = 2 if architecture == "RobertaForQuestionAnswering" else 3
    config = transformers.RobertaConfig(**(own | fields))
    model = getattr(transformers, architecture)(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn_like(parameter)
            if name.endswith("LayerNorm.weight"):
                values = values.uniform_(0.5, 2.0)
            elif size == "base" and values.ndim > 1:
                # At 0.7 float32's own gradients are 2e-4 of the largest from float64's.
                values *= 0.5 * values.shape[1] ** -0.5
            else:
                values *= 0.25
            parameter.copy_(values)
    return model


def saved(folder, architecture="RobertaForMaskedLM", size="tiny", **fields):
    """Saves `made` with a tokenizer of as many tokens. Returns the model."""
    model = made(architecture, size, **fields)
    model.save_pretrained(folder)
    tokenizer = ANGLED.train([TEXT] * 3, PIECES, lowercase=False)
    tokenization.save_tokenizer(tokenizer, folder)
    return model


def batch(architecture):
    """Columns of rows of three lengths, padded as `transformers` pads."""
    shape = (4, 3, 30) if architecture.endswith("MultipleChoice") else (4, 30)
    ids = np.random.default_rng(0).integers(5, PIECES, shape)
    mask = np.ones(shape, int)
    for row, length in ((1, 20), (2, 7)):
        ids[row, ..., length:], mask[row, ..., length:] = 1, 0
    return {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


@pytest.mark.parametrize(
    ("architecture", "size"),
    [
        *((name, "tiny") for name in ARCHITECTURES),
        pytest.param("RobertaForMaskedLM", "base", marks=pytest.mark.slow),
    ],
)
def test_outputs_and_gradients(architecture, size, tmp_path):
    model = saved(tmp_path / "saved", architecture, size)
    given = batch(architecture)
    bert = bert_jax.load(tmp_path / "saved")
    check_same(bert, model, outputs_of(model, given), given)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_export_is_the_folder_that_was_read(transformers, architecture, tmp_path):
    saved(tmp_path / "saved", architecture)
    check_export(tmp_path / "saved", tmp_path / "out")
    again = getattr(transformers, architecture).from_pretrained(tmp_path / "out")
    fields = again.config
    assert (fields.max_position_embeddings, fields.type_vocab_size) == (42, 1)


def test_pipeline_opens_an_export_and_fills_alike(transformers, tmp_path):
    saved(tmp_path / "saved")
    weights.find_source(tmp_path / "saved").export(tmp_path / "out")
    text = "the quick <mask> fox"
    theirs = transformers.pipeline("fill-mask", model=str(tmp_path / "out"))(text)
    masks = bert_jax.load(tmp_path / "out").fill_mask(text)[0]
    assert [one["id"] for one in masks] == [one["token"] for one in theirs]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pad_token_id": 0}, "pad_token_id=0; only a RoBERTa with 1 can be read"),
        ({"is_decoder": True}, "config.model.causal=True: a RoBERTa has attention in"),
    ],
)
def test_another_model_is_refused_in_a_line(fields, message, tmp_path):
    saved(tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    line = error_line(bert_jax.load, tmp_path / "saved")
    assert "config.json" in line and message in line
