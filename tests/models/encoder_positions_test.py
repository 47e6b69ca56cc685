"""The last layer, computed only where its output is read, is the same there."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.encoder import Bert
from bert_jax.models.kernels.fused import fused_attention
from tests.micro import bert_config, init_pretraining, initial_params
from tests.models.encoder_test import sequences
from tests.models.small_bert import CONFIG, SIZES, random_params

KEY = jax.random.key(3)
FUSED = {"attention": "fused", "attention_probs_dropout_prob": 0.0}
FUSED |= {"hidden_size": 32, "num_attention_heads": 2}


@pytest.fixture(autouse=True)
def fused_anywhere(monkeypatch):
    interpreted = partial(fused_attention, interpret=True)
    monkeypatch.setattr("bert_jax.models.kernels.fused.fused_attention", interpreted)


def batch(packed=False):
    """ids, mask, segments, rows of several sequences or None, and positions to read."""
    alone, together, _ = sequences()
    ids, mask, segments, places, _, where = together if packed else (*alone, None, None)
    return ids, mask, segments, where, places


def encoded(config, key, packed=False):
    """A function of parameters, and the batch's places."""
    ids, mask, segments, where, places = batch(packed)
    bert = Bert(config)

    def run(params):
        return bert.apply(
            {"params": params["bert"]}, ids, mask, segments, key, where, places
        )

    return run, places


@pytest.mark.parametrize(
    ("change", "key", "packed"),
    [
        ({}, None, False),
        ({"causal": True}, None, False),
        ({"scan_layers": True, "remat": "full"}, KEY, True),
        (FUSED, KEY, True),
    ],
)
def test_last_layer_is_the_same_at_the_positions_that_are_read(change, key, packed):
    config = bert_config(**SIZES | change)
    run, places = encoded(config, key, packed)
    out = jax.jit(run)(random_params(config))
    sequence = np.asarray(out.sequence, np.float32)
    wanted = np.take_along_axis(sequence, np.asarray(places)[:, :, None], axis=1)
    np.testing.assert_allclose(out.gathered, wanted, atol=2e-5 * np.abs(wanted).max())
    ids, mask, _, where, _ = batch(packed)
    marks = np.zeros((len(ids), 1), int)
    if packed:
        marks = np.asarray(where.cls_positions)
    elif config.causal:
        marks = np.asarray(mask).sum(axis=1, keepdims=True) - 1
    first = np.take_along_axis(sequence, marks[:, :, None], axis=1)
    first = first if packed else first[:, 0]
    np.testing.assert_allclose(out.first, first, atol=2e-5 * np.abs(first).max())


@pytest.mark.slow
def test_last_layer_gradients_are_the_same():
    run, places = encoded(CONFIG, KEY, packed=True)

    def there(params):
        return jnp.sum(run(params).gathered ** 2)

    def everywhere(params):
        sequence = run(params).sequence
        chosen = jnp.take_along_axis(sequence, places[:, :, None], axis=1)
        return jnp.sum(chosen**2)

    params = random_params(CONFIG)
    few, all_places = (jax.jit(jax.grad(f))(params) for f in (there, everywhere))
    for one, other in zip(*map(jax.tree.leaves, (few, all_places)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * (1 + np.abs(other).max()))


def flops(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().cost_analysis()["flops"]


def test_last_layer_is_computed_nowhere_else():
    config = dataclasses.replace(
        CONFIG, hidden_size=48, intermediate_size=192, num_hidden_layers=1
    )
    run, places = encoded(config, None)
    params = initial_params(partial(init_pretraining, config))
    there = flops(lambda params: run(params).gathered, params)
    everywhere = flops(lambda params: run(params).sequence, params)
    rows, length = batch()[0].shape
    read = 1 + places.shape[1]  # and [CLS]
    left_out = rows * (length - read)
    # Query, output and feed-forward, and attention's two products.
    products = 2 * (2 * 48**2 + 2 * 48 * 192) + 2 * 2 * length * 48
    assert everywhere - there >= left_out * products
    # Keys and values stay, for all.
    assert there >= 2 * rows * length * 2 * 48**2
