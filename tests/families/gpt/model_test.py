"""GPT computes what torch's does. Later tokens change nothing before them."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.convert import layout
from bert_jax.families.gpt.layout import LAYOUT as GPT
from bert_jax.families.gpt.model import GptForPreTraining, GptWithHeads
from bert_jax.families.gpt.pretraining import GptPretraining
from bert_jax.models.heads import init_model
from tests.close import GRADIENT_TERMS, assert_close
from tests.micro import bert_config, initial_params

SIZES = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "intermediate_size": 128}
OWN = {"type_vocab_size": 1, "causal": True, "architecture": "gpt"}
FORM = {"hidden_act": "gelu_tanh", "layer_norm_eps": 1e-5}
CONFIG = bert_config(**SIZES, **OWN, **FORM, max_position_embeddings=20)
BATCH, LENGTH = 3, 13


@functools.cache
def drawn(model):
    """Parameters whose logits are far apart."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(4 * x + 0.1 * rng.normal(size=x.shape), jnp.float32),
        initial_params(functools.partial(init_model, model)),
    )


@functools.cache
def compiled(model):
    return jax.jit(model.apply)


def inputs():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 61, (BATCH, LENGTH))
    mask = (np.arange(LENGTH) < np.array([[LENGTH], [7], [4]])).astype(int)
    return [jnp.asarray(x, jnp.int32) for x in (ids, mask, 0 * ids)]


def theirs(params, name="OpenAIGPTLMHeadModel", labels=()):
    torch = pytest.importorskip("torch", reason="needs the parity extra")
    transformers = pytest.importorskip("transformers", reason="needs the parity extra")
    weights = layout.Weights(CONFIG, params, name, labels)
    fields = GPT.config_fields(weights)
    fields |= dict.fromkeys(("resid_pdrop", "attn_pdrop", "embd_pdrop"), 0.0)
    config = transformers.OpenAIGPTConfig(**fields, num_labels=max(1, len(labels)))
    model = getattr(transformers, name)(config).eval()
    state = {k: torch.tensor(v) for k, v in GPT.tensors(weights).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all("lm_head" in name for name in missing)
    model.tie_weights()
    return torch, model


@pytest.mark.slow
def test_logits_and_gradients_are_torch_s():
    model = GptWithHeads(CONFIG, ("masked_lm",))
    params = drawn(model)
    torch, network = theirs(params)
    ids, mask, segments = inputs()
    given = {"input_ids": torch.tensor(np.asarray(ids)).long()}
    given["attention_mask"] = torch.tensor(np.asarray(mask))
    expected = network(**given, output_hidden_states=True)
    factors = np.random.default_rng(2).normal(size=(BATCH, LENGTH, 61))
    factors = (factors * np.asarray(mask)[..., None]).astype(np.float32)
    (torch.log_softmax(expected.logits, -1) * torch.tensor(factors)).sum().backward()

    def loss(params):
        outputs = model.apply({"params": params}, ids, mask, segments)
        found = jnp.sum(jax.nn.log_softmax(outputs["lm_logits"]) * factors)
        return found, outputs

    (_, outputs), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    real = np.asarray(mask) == 1
    logits = np.asarray(outputs["lm_logits"])[real]
    assert logits.std() > 0.5
    assert_close(logits, expected.logits.detach().numpy()[real])
    hidden = zip(outputs["hidden_states"], expected.hidden_states, strict=True)
    for ours, other in hidden:
        other = other.detach().numpy()
        assert_close(np.asarray(ours)[real], other[real])
    weights = layout.Weights(CONFIG, jax.device_get(gradients), "OpenAIGPTLMHeadModel")
    found = GPT.tensors(weights)
    named = dict(network.named_parameters())
    assert found.keys() == named.keys()
    for name, gradient in found.items():
        other = named[name].grad.numpy()
        scale = max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(gradient, other, atol=1e-5 * scale, err_msg=name)


@pytest.mark.slow
def test_later_tokens_change_nothing_before_them():
    model = GptWithHeads(CONFIG, ("masked_lm", "token_classification"), 3)
    params = drawn(model)
    ids, mask, segments = inputs()
    changed = ids.at[:, 6:].set((ids[:, 6:] + 5) % 61)
    run = compiled(model)
    rest = (jnp.ones_like(mask), segments)
    one, two = (run({"params": params}, x, *rest) for x in (ids, changed))
    for name in ("lm_logits", "logits"):
        np.testing.assert_array_equal(one[name][:, :6], two[name][:, :6])
        assert not np.allclose(one[name][:, 6], two[name][:, 6])
    # Nor do segments, which a GPT has not.
    other = run({"params": params}, ids, jnp.ones_like(mask), segments + 1)
    np.testing.assert_array_equal(one["lm_logits"], other["lm_logits"])


@pytest.mark.slow
def test_vector_is_that_of_the_last_token():
    """Padding changes nothing. Two sequences of an example are added."""
    model = GptWithHeads(CONFIG, ("sequence_classification",), 3)
    params = drawn(model)
    ids, mask, segments = inputs()
    whole = compiled(model)({"params": params}, ids, mask, segments)
    for row, length in enumerate((LENGTH, 7, 4)):
        pooled = whole["hidden_states"][-1][row, length - 1]
        assert_close(whole["pooled"][row], pooled)
    short = [x[1:2, :7] for x in (ids, mask, segments)]
    alone = compiled(model)({"params": params}, *short)["logits"]
    assert_close(alone[0], whole["logits"][1])
    both = [jnp.stack([x, x[::-1]], 1) for x in (ids, mask, segments)]
    added = compiled(model)({"params": params}, *both)["logits"]
    bias = params["sequence_classification"]["bias"]
    expected = whole["logits"] + whole["logits"][::-1] - bias
    assert_close(added, expected, terms=GRADIENT_TERMS)


@pytest.mark.slow
def test_language_model_may_score_positions_too():
    """As one table of tokens and positions does in train.py."""
    plain = GptWithHeads(CONFIG, ("masked_lm",))
    params = drawn(plain)
    model = plain.clone(scored_positions=9)
    outputs = compiled(model)({"params": params}, *inputs())
    logits = outputs["lm_logits"]
    assert logits.shape == (BATCH, LENGTH, 61 + 9)
    positions = params["bert"]["embeddings"]["position_embeddings"]["embedding"]
    expected = np.asarray(outputs["hidden_states"][-1]) @ positions[:9].T
    assert_close(logits[..., 61:], expected, terms=GRADIENT_TERMS)


@pytest.mark.slow
def test_pre_training_s_logits_are_those_of_the_language_model():
    model = GptWithHeads(CONFIG, ("masked_lm",))
    params = drawn(model)
    whole = compiled(model)({"params": params}, *inputs())["lm_logits"]
    trained = compiled(GptForPreTraining(CONFIG))
    found = trained({"params": params}, *inputs(), None)["lm_logits"]
    assert_close(found, whole[:, :-1])
    places = jnp.array([[2], [5], [1]])
    found = trained({"params": params}, *inputs(), places)["lm_logits"]
    assert_close(found[1, 0], whole[1, 5])


@pytest.mark.slow
def test_initial_values_are_normal_and_not_cut():
    config = dataclasses.replace(CONFIG, vocab_size=4000)
    params = initial_params(functools.partial(init_model, GptWithHeads(config)))
    table = np.asarray(params["bert"]["embeddings"]["word_embeddings"]["embedding"])
    assert table.std() == pytest.approx(0.02, rel=0.02)
    assert (np.abs(table) > 0.05).any()  # BERT's have none beyond 0.04
    names = params["bert"].keys() | params["bert"]["embeddings"].keys()
    assert names == {"embeddings", "encoder", "word_embeddings", "position_embeddings"}


def test_released_sizes():
    config = bert_config(vocab_size=40478, **OWN)
    shapes = [p.shape for p in GPT.parameters("bert", config)]
    assert sum(int(np.prod(shape)) for shape in shapes) == 116_534_784
    layer = 2 * 512 * (12 * 768**2) + 4 * 512 * 512 * 768
    head = 2 * 511 * 768 * 40478
    task = SimpleNamespace(model_config=config)
    found = GptPretraining.flops(task, {"input_ids": (2, 512)})
    assert found == 2 * 3 * (12 * layer + head)
