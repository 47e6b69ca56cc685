"""ModernBERT's model: rows of several texts, windows, refusals."""

import dataclasses
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from bert_jax.config import configuration
from bert_jax.families.modernbert.layout import LAYOUT
from bert_jax.families.modernbert.model import (
    ModernBert,
    ModernBertForPreTraining,
    ModernBertWithHeads,
)
from bert_jax.family import bert_config
from bert_jax.models.encoder import Packed
from bert_jax.models.heads import count_parameters, init_model
from bert_jax.training import optimizer
from tests.close import GRADIENT_TERMS, assert_close
from tests.families.modernbert.modernbert_folders import drawn, fields
from tests.micro import error_line, initial_params

PACKED = [[17, 13, 9], [25, 12]]  # tokens of the texts of two rows of 40


def weights(architecture, **more):
    """A config and its parameters, as if read from a folder."""
    given = fields(architecture, "wide", **more)
    config, tensors, tree = LAYOUT.config(given, Path()), drawn(given), {}
    for part in ("bert", *LAYOUT.architectures[architecture]):
        for parameter in LAYOUT.parameters(part, config, labels=3):
            array = tensors[parameter.name]
            tree[parameter.path] = parameter.convert_from_torch(array)
    return config, jax.tree.map(jnp.asarray, unflatten_dict(tree))


def texts():
    """The texts of PACKED, one a row and together: ids, mask, two places of each."""
    rng = np.random.default_rng(0)
    sizes = [size for row in PACKED for size in row]
    ids = [rng.integers(1, 61, size) for size in sizes]
    masked = [np.sort(rng.permutation(size)[:2]) for size in sizes]
    alone = np.zeros((len(sizes), 40), np.int32)
    for row, own in zip(alone, ids, strict=True):
        row[: len(own)] = own
    one = (alone, (alone > 0).astype(np.int32), np.stack(masked).astype(np.int32))
    one = tuple(map(jnp.asarray, one))
    rows, numbers, places = np.zeros((3, 2, 40), np.int32)
    firsts, chosen = np.zeros((2, 3), np.int32), np.zeros((2, 6), np.int32)
    where, text = [], 0
    for row, group in enumerate(PACKED):
        start = 0
        for index, size in enumerate(group):
            here = slice(start, start + size)
            rows[row, here], numbers[row, here] = ids[text], index + 1
            places[row, here], firsts[row, index] = np.arange(size), start
            chosen[row, 2 * index : 2 * index + 2] = masked[text] + start
            where.append((row, index))
            start, text = start + size, text + 1
    packed = Packed(*map(jnp.asarray, (numbers, places, firsts)))
    shared = map(jnp.asarray, (rows, (rows > 0).astype(np.int32), chosen))
    return one, (*shared, packed), where


def logits_of(config, params, ids, mask, places, packed=None):
    model = ModernBertForPreTraining(config)
    given = (ids, mask, jnp.zeros_like(ids), places, None, packed)
    return model.apply({"params": params}, *given)["masked_lm_logits"]


@pytest.mark.slow
def test_texts_that_share_a_row_are_as_if_alone():
    """Windows, rotations, outputs and gradients."""
    config, params = weights("ModernBertForMaskedLM", num_hidden_layers=2)
    one, together, where = texts()
    rows, indices = map(np.array, zip(*where, strict=True))
    order = 2 * indices[:, None] + np.arange(2)

    def loss(params, is_packed):
        given = together if is_packed else one
        logits = logits_of(config, params, *given)
        own = logits[rows[:, None], order] if is_packed else logits
        # Linear in the logits: a sine of large ones would enlarge their rounding.
        return jnp.vdot(own, jnp.cos(jnp.arange(own.size))), own

    found, expected = (
        jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)(params, packed)
        for packed in (True, False)
    )
    assert_close(found[1], expected[1])
    assert_close(found[0], expected[0], terms=GRADIENT_TERMS)


@pytest.mark.slow
def test_classes_of_texts_that_share_a_row():
    name = "ModernBertForSequenceClassification"
    own = {"classifier_pooling": "mean", "num_hidden_layers": 2}
    config, params = weights(name, **own)
    model = ModernBertWithHeads(config, ("sequence_classification",), labels=3)
    one, (ids, mask, _, packed), where = texts()
    zeros, apply = jnp.zeros_like, jax.jit(model.apply)
    alone = apply({"params": params}, *one[:2], zeros(one[0]))["logits"]
    together = apply({"params": params}, ids, mask, zeros(ids), None, packed)
    own = together["logits"][tuple(map(np.array, zip(*where, strict=True)))]
    assert_close(own, alone)


@pytest.mark.slow
def test_local_layer_sees_its_window_alone():
    """Two layers, the second of which is local: a token farther away than half of its
    window changes a place by the first layer's attention alone."""
    config, params = weights("ModernBertForMaskedLM", num_hidden_layers=2)
    ids = np.random.default_rng(0).integers(1, 61, (1, 40))
    mask = jnp.ones(ids.shape, jnp.int32)
    # Without the global layer's attention, only the window remains of the path.
    output = params["bert"]["encoder"]["layer_0"]["attention"]["output"]
    output["kernel"] = jnp.zeros_like(output["kernel"])

    @jax.jit
    def states(ids):
        model = ModernBert(config)
        return model.apply({"params": params["bert"]}, ids, mask, mask * 0).sequence

    other = ids.copy()
    other[0, 20] = 1 + other[0, 20] % 60
    changed = np.any(np.asarray(states(ids) != states(other)), axis=-1)[0]
    np.testing.assert_array_equal(np.flatnonzero(changed), np.arange(16, 25))


def base(**more):
    config = configuration.load_config("configs/modernbert.py", [])
    for name, value in more.items():
        config.model[name] = value
    return bert_config(config.model, 50_368)


def test_size_of_base():
    """149 M with the masked LM's head, as published."""
    init = partial(init_model, ModernBertForPreTraining(base()), inputs=4)
    params = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0)))
    assert count_parameters(params) == 149_655_232
    head = count_parameters(params["bert"]["head"]) + 50_368
    assert count_parameters(params) - head == 149_014_272


@pytest.mark.slow
def test_initial_values():
    """As `_init_weights` of `transformers`."""
    config = dataclasses.replace(base(num_hidden_layers=2), vocab_size=100)
    model = ModernBertWithHeads(config, ("sequence_classification",), labels=3)
    params = initial_params(partial(init_model, model, inputs=3))
    layer = params["bert"]["encoder"]["layer_0"]
    cut = 0.8796  # standard deviation of a normal cut at two deviations
    for kernel, spread in (
        (layer["attention"]["query"]["kernel"], 0.02),
        (layer["intermediate"]["kernel"], 0.02),
        (layer["attention"]["output"]["kernel"], 0.01),
        (layer["output"]["kernel"], 0.01),
        (params["bert"]["head"]["dense"]["kernel"], 0.01),
        (params["sequence_classification"]["kernel"], 768**-0.5),
    ):
        assert np.std(kernel) == pytest.approx(spread * cut, rel=0.05)


def test_norms_do_not_decay():
    _, params = weights("ModernBertForMaskedLM")
    mask = optimizer.decay_mask(params)
    for path, decays in jax.tree_util.tree_leaves_with_path(mask):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        assert decays == name.endswith(("kernel", "embedding")), name


@pytest.mark.parametrize(
    ("field", "value"), [("positions", "learnt"), ("local_attention", 7)]
)
def test_modernbert_refuses_what_it_is_not(field, value):
    assert "config.model." in error_line(base, **{field: value})
