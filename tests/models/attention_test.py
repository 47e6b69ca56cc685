"""Left to right: nothing depends on what comes later."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.encoder import Packed
from bert_jax.models.heads import BertForPreTraining, init_model
from bert_jax.models.kernels.fused import fused_attention
from bert_jax.models.lstm import BiLstm
from tests.close import assert_close
from tests.micro import bert_config, init_pretraining, initial_params

SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1}
SIZES |= {"num_attention_heads": 2, "intermediate_size": 40}
SIZES["max_position_embeddings"] = 24
CONFIG = bert_config(**SIZES, causal=True)
LENGTH, CHANGED = 24, 11


@pytest.fixture(autouse=True)
def fused_anywhere(monkeypatch):
    interpreted = partial(fused_attention, interpret=True)
    monkeypatch.setattr("bert_jax.models.kernels.fused.fused_attention", interpreted)


@pytest.fixture(scope="module")
def params():
    return initial_params(partial(init_pretraining, CONFIG))


def classifier(head, bilstm):
    """A model and its parameters."""
    model = BertWithHeads(CONFIG, (head,), 3, bilstm=bilstm)
    return model, initial_params(partial(init_model, model))


def batch(packed: bool):
    """Two rows whose tokens differ from CHANGED on, and nowhere before."""
    rng = np.random.default_rng(0)
    ids = np.repeat(rng.integers(5, 50, (1, LENGTH)), 2, axis=0)
    ids[1, CHANGED:] = (ids[1, CHANGED:] + 7) % 50
    mask = np.ones_like(ids)
    mask[:, LENGTH - 2 :] = 0
    own = None
    if packed:
        ends = (CHANGED + 5, LENGTH - 2)  # the change is in the first of two
        first = np.arange(LENGTH) < ends[0]
        numbers, places = np.where(first, 1, 2), np.where(first, np.arange(LENGTH), 0)
        arrays = (numbers * mask, places * mask, np.array([[0, ends[0]]] * 2))
        own = Packed(*map(jnp.asarray, arrays))
    return [jnp.asarray(x, jnp.int32) for x in (ids, mask, 0 * ids)], own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "packed", "causal"),
    [
        ("einsum", False, True),
        ("fused", True, True),
        ("einsum", False, False),  # where it does change earlier positions
    ],
)
def test_later_piece_changes_nothing_before_it(params, kind, packed, causal):
    config = bert_config(**SIZES, attention=kind, causal=causal)
    inputs, own = batch(packed)
    run = jax.jit(partial(BertForPreTraining(config).apply, packed=own))
    logits = run({"params": params}, *inputs, None)["lm_logits"]
    assert logits.shape == (2, LENGTH - 1, 50)
    before, after = np.asarray(logits[:, :CHANGED]), np.asarray(logits[:, CHANGED:])
    assert np.array_equal(before[0], before[1]) == causal
    assert not np.allclose(after[0, 0], after[1, 0])


@pytest.mark.slow
@pytest.mark.parametrize("bilstm", [False, True])
def test_classifier_reads_the_last_token(bilstm):
    """So every token counts, and padding does not."""
    model, params = classifier("sequence_classification", bilstm)
    (ids, mask, segments), _ = batch(False)
    run = jax.jit(lambda *inputs: model.apply({"params": params}, *inputs)["logits"])
    logits = np.asarray(run(ids, mask, segments))
    assert not np.allclose(logits[0], logits[1])
    again = run(ids.at[:, LENGTH - 2 :].set(9), mask, segments)
    np.testing.assert_array_equal(logits, again)
    shorter = [x[:, : LENGTH - 2] for x in (ids, mask, segments)]
    assert_close(run(*shorter), logits)


@pytest.mark.slow
def test_bilstm_is_torch_s(torch):
    rng = np.random.default_rng(1)
    size, inputs, layers, lengths = 5, 6, 2, [7, 1, 4]
    x = rng.normal(size=(3, 7, inputs)).astype(np.float32)
    mask = jnp.asarray(np.arange(7) < np.array(lengths)[:, None], jnp.int32)
    ours = BiLstm(size, layers)
    params = initial_params(lambda key: ours.init(key, jnp.asarray(x), mask))["params"]
    theirs = torch.nn.LSTM(inputs, size, layers, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for layer in range(layers):
            for direction, ending in enumerate(("", "_reverse")):
                for mine, name in (("kernel", "ih"), ("recurrent_kernel", "hh")):
                    value = np.asarray(params[f"{mine}_{layer}"][direction])
                    weight = getattr(theirs, f"weight_{name}_l{layer}{ending}")
                    matrix = value.reshape(len(value), -1).T.copy()
                    weight.copy_(torch.tensor(matrix))
                bias = np.asarray(params[f"bias_{layer}"][direction]).ravel().copy()
                getattr(theirs, f"bias_ih_l{layer}{ending}").copy_(torch.tensor(bias))
                getattr(theirs, f"bias_hh_l{layer}{ending}").zero_()
    tensor = torch.tensor(x, requires_grad=True)
    form = {"batch_first": True, "enforce_sorted": False}
    packed = torch.nn.utils.rnn.pack_padded_sequence(tensor, lengths, **form)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], True)
    factors = rng.normal(size=expected.shape).astype(np.float32)
    (expected * torch.tensor(factors)).sum().backward()

    def loss(x):
        found = ours.apply({"params": params}, x, mask)
        return jnp.sum(found * factors), found

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, found), gradient = run(jnp.asarray(x))
    assert_close(found, expected.detach().numpy())
    assert_close(gradient, tensor.grad.numpy())
