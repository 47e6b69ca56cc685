"""RoBERTa against transformers': vectors, logits, gradients, folders."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.convert import weights
from bert_jax.errors import UserError
from tests.families.roberta_folders import HEADS, SIZES, batch, saved


def far(ours, theirs):
    """The largest difference, as a share of the largest number."""
    theirs = np.asarray(theirs)
    return np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("architecture", HEADS)
def test_vectors_and_logits_are_those_of_transformers(architecture, size, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the parity extra")
    model = saved(tmp_path / "saved", architecture, size)
    ids, mask = batch(architecture)
    with torch.no_grad():
        theirs = model(
            torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            output_hidden_states=True,
        )
    ours = bert_jax.load(tmp_path / "saved").apply(ids, mask, np.zeros_like(ids))
    for mine, vectors in zip(ours["hidden_states"], theirs.hidden_states, strict=True):
        assert far(mine, vectors) < 1e-5
    name = HEADS[architecture]
    found = {"pooled": "pooler_output", "masked_lm_logits": "logits"}.get(name, name)
    assert far(ours[name], theirs[found]) < 1e-5


@pytest.mark.parametrize(
    "architecture", ["RobertaForMaskedLM", "RobertaForSequenceClassification"]
)
def test_gradients_are_those_of_transformers(architecture, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the parity extra")
    model = saved(tmp_path / "saved", architecture)
    ids, mask = batch(architecture)
    logits = model(torch.tensor(ids), torch.tensor(mask)).logits
    shape = tuple(logits.shape)
    real = mask[..., None] if len(shape) == 3 else np.ones(shape)
    factors = np.random.default_rng(1).normal(size=shape) * real
    (logits * torch.tensor(factors, dtype=torch.float32)).sum().backward()
    own = bert_jax.load(tmp_path / "saved")

    def loss(params):
        outputs = own.forward(params, ids, mask, np.zeros_like(ids))
        return jnp.sum(outputs[HEADS[architecture]] * jnp.asarray(factors))

    found = weights.FAMILIES["roberta"]
    gradients = jax.device_get(jax.grad(loss)(own.params))
    theirs = {name: p.grad for name, p in model.named_parameters()}
    parts = ("bert", *found.layout.ARCHITECTURES[architecture])
    names = set()
    for part in parts:
        for parameter in found.layout.parameters(part, own.config, len(own.labels)):
            if theirs.get(parameter.huggingface) is None:
                continue
            mine = parameter.give(parameter.of(gradients), "huggingface")
            expected = theirs[parameter.huggingface].numpy()
            # A key's bias moves all scores of a query alike: rounding is left.
            scale = max(np.abs(expected).max(), 1e-2)
            assert np.abs(mine - expected).max() / scale < 1e-4, parameter.huggingface
            names.add(parameter.huggingface)
    assert len(names) >= len(theirs) - 2  # tied copies


@pytest.mark.parametrize("architecture", HEADS)
def test_an_export_is_the_folder_that_was_read(architecture, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    saved(tmp_path / "saved", architecture)
    weights.export(tmp_path / "saved", tmp_path / "out")
    before = load_file(tmp_path / "saved" / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert after.keys() == before.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
    again = getattr(transformers, architecture).from_pretrained(tmp_path / "out")
    fields = again.config
    assert (fields.max_position_embeddings, fields.type_vocab_size) == (42, 1)


@pytest.mark.parametrize(
    ("architecture", "task", "text"),
    [
        ("RobertaForMaskedLM", "fill-mask", "the quick <mask> fox"),
        ("RobertaForSequenceClassification", "text-classification", "the lazy dog"),
        ("RobertaForTokenClassification", "token-classification", "the lazy dog"),
    ],
)
def test_a_pipeline_opens_an_export_and_answers_alike(
    architecture, task, text, tmp_path
):
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    saved(tmp_path / "saved", architecture)
    weights.export(tmp_path / "saved", tmp_path / "out")
    theirs = transformers.pipeline(task, model=str(tmp_path / "out"))(text)
    ours = bert_jax.load(tmp_path / "out")
    encoded = ours.encode([text])
    outputs = ours.apply(
        *(encoded[name] for name in ("input_ids", "input_mask", "segment_ids"))
    )
    logits = np.asarray(outputs[HEADS[architecture]])[0]
    if task == "fill-mask":
        place = list(encoded["input_ids"][0]).index(4)
        shares = np.asarray(jax.nn.softmax(logits[place]))
        assert [one["token"] for one in theirs] == list(np.argsort(-shares)[:5])
        masks = ours.fill_mask(text)[0]
        assert [one["id"] for one in masks] == [one["token"] for one in theirs]
    elif task == "text-classification":
        shares = np.asarray(jax.nn.softmax(logits))
        assert theirs[0]["label"] == ours.labels[int(np.argmax(shares))]
        np.testing.assert_allclose(theirs[0]["score"], shares.max(), rtol=1e-4)
    else:
        best = [ours.labels[i] for i in np.argmax(logits[1:-1], axis=-1)]
        assert [one["entity"] for one in theirs] == best


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pad_token_id": 0}, "pad_token_id=0; a RoBERTa with 1 can be read"),
        ({"type_vocab_size": 2}, "config.model.type_vocab_size=2: a RoBERTa has one"),
        ({"hidden_act": "relu"}, "config.model.hidden_act=relu: a RoBERTa has this"),
        ({"is_decoder": True}, "config.model.causal=True: a RoBERTa has attention in"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False; a RoBERTa with"),
        ({"architectures": ["RobertaForCausalLM"]}, "'RobertaForCausalLM' is not sup"),
    ],
)
def test_another_model_is_refused_in_a_line(fields, message, tmp_path):
    saved(tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with pytest.raises(UserError, match=r"config\.json") as caught:
        bert_jax.load(tmp_path / "saved")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
