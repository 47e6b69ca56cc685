"""ESIM over ELMo against torch, from rowanz/swagaf's esim_swag.py."""

import jax
import numpy as np
import pytest

from bert_jax.families.elmo import esim
from bert_jax.families.elmo import systems as elmo_systems
from bert_jax.families.elmo.systems import ElmoSystem, System
from tests.families.elmo_systems_test import (
    CONFIG,
    PAIRS,
    own_layers,
    random_like,
    rows,
)

SIZE = 5
ESIM = System(pairs=True, lstm_size=SIZE, lstm_layers=1, classifier_size=7, dropout=0.3)
MODEL = ElmoSystem(CONFIG, ESIM, esim.Scorer, "head", 1, esim.Inference)


@pytest.fixture(scope="module")
def params():
    shapes = jax.eval_shape(lambda: elmo_systems.init_system(MODEL, jax.random.key(0)))
    return random_like(shapes)


def scores(params, given, key=None):
    run = jax.jit(lambda p, *x: MODEL.apply({"params": p}, *x, key)["logits"][:, 0])
    return np.asarray(run(params, *given))


def published(params, context, ending):
    """`ESIM.forward` for one pair, so that there is no padding."""
    torch = pytest.importorskip("torch")

    def tensor(x):
        return torch.tensor(np.asarray(x), dtype=torch.float64)

    def lstm(x, values):
        layer = torch.nn.LSTM(x.shape[-1], SIZE, bidirectional=True, batch_first=True)
        layer = layer.double()
        for direction, suffix in enumerate(("", "_reverse")):
            for name, ours in (("ih", "kernel"), ("hh", "recurrent_kernel")):
                value = tensor(values[ours])[direction].permute(1, 2, 0)
                weight = getattr(layer, f"weight_{name}_l0{suffix}")
                weight.data = value.reshape(4 * SIZE, -1)
            getattr(layer, f"bias_hh_l0{suffix}").data.zero_()
            bias = tensor(values["bias"])[direction].reshape(-1)
            getattr(layer, f"bias_ih_l0{suffix}").data = bias
        return layer(x[None])[0][0]

    def linear(x, values):
        return x @ tensor(values["kernel"]) + tensor(values["bias"])

    reader, head = params["reader"], params["head"]
    share = torch.softmax(tensor(params["mix"]["weights"]), 0)
    encoded = []
    for text in (context, ending):
        layers = tensor(own_layers(params, text))
        x = tensor(params["mix"]["gamma"]) * torch.einsum("l,lwd->wd", share, layers)
        encoded.append(lstm(x, reader["bilstm"]))
    similarity = encoded[0] @ encoded[1].T
    attended = (
        torch.softmax(similarity, -1) @ encoded[1],
        torch.softmax(similarity.T, -1) @ encoded[0],
    )
    pooled = []
    for own, other in zip(encoded, attended, strict=True):
        enhanced = torch.cat([own, other, own - other, own * other], -1)
        projected = torch.relu(linear(enhanced, reader["projection"]))
        composed = lstm(projected, reader["modeling"])
        pooled += [composed.mean(0), composed.max(0).values]
    hidden = torch.relu(linear(torch.cat(pooled), head["hidden"]))
    return float(linear(hidden, head["output"]).detach())


def test_ending_is_scored_as_published(params):
    found = scores(params, rows())
    for row, (context, ending) in enumerate(PAIRS[:2]):
        expected = published(params, context, ending)
        assert found[row] == pytest.approx(expected, abs=1e-5)
