"""GLUE's baseline over ELMo against NumPy, from nyu-mll/GLUE-baselines' models.py."""

import elmo_numpy
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bert_jax.families.elmo import characters
from bert_jax.families.elmo import loading as public
from bert_jax.families.elmo import released as weights
from bert_jax.families.elmo import systems as elmo_systems
from bert_jax.families.elmo.config import ElmoConfig
from bert_jax.families.elmo.model import Elmo
from bert_jax.families.elmo.systems import Classifier, ElmoSystem, Marks, System
from tests.close import assert_close

CONFIG = ElmoConfig(
    vocab_size=30,
    hidden_size=6,
    intermediate_size=10,
    filters=((1, 4), (2, 5)),
    character_size=4,
    max_characters=8,
    dropout=0.1,
)
OPTIONS = {
    "char_cnn": {"filters": [(1, 4), (2, 5)], "n_highway": 2, "activation": "relu"},
    "lstm": {
        **{"n_layers": 2, "cell_clip": 3.0, "proj_clip": 3.0},
        "use_skip_connections": True,
    },
}
# Pairs of texts. The last one has no second text.
PAIRS = (
    (("the", "bank", "was", "closed"), ("a", "river", "bank", "is", "wide", "here")),
    (("he", "sat"), ("by", "the", "bank")),
    (("alone", "he", "stood", ".") * 2, ()),
)


def rows(pairs=PAIRS, length=14):
    """Characters, ids, mask and segments of `<S> a </S> <S> b </S>`."""
    chars = np.zeros((len(pairs), length, 8), np.int32)
    ids, mask, segments = np.zeros((3, len(pairs), length), np.int32)
    for i, pair in enumerate(pairs):
        words, owners = [], []
        for segment, text in enumerate(pair):
            if text:
                words += ["<S>", *text, "</S>"]
                owners += [segment] * (len(text) + 2)
        chars[i, : len(words)] = characters.of_words(words, 8)
        ids[i, : len(words)] = [
            {"<S>": 1, "</S>": 2}.get(word, 5 + place)
            for place, word in enumerate(words)
        ]
        mask[i, : len(words)], segments[i, : len(words)] = 1, owners
    return tuple(map(jnp.asarray, (chars, ids, mask, segments)))


def random_like(tree, scale=0.5):
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape) * scale, jnp.float32),
        nn.meta.unbox(tree),
    )


def made(**fields):
    system = System(**{"lstm_size": 5, "classifier_size": 7, "pairs": True, **fields})
    model = ElmoSystem(CONFIG, system, Classifier, "sequence_classification", labels=3)
    shapes = jax.eval_shape(lambda: elmo_systems.init_system(model, jax.random.key(0)))
    params = random_like(shapes)
    run = jax.jit(lambda *given: model.apply({"params": params}, *given)["logits"])
    return params, run


def own_layers(params, text):
    """ELMo's layers of a text alone, in NumPy."""
    values = weights._values(jax.device_get(params["elmo"]), CONFIG)
    ids = characters.of_words(["<S>", *text, "</S>"], 8)
    values = {name: np.asarray(value, np.float64) for name, value in values.items()}
    return elmo_numpy.layers(ids, values, OPTIONS)[:, 1:-1]


def lstm(x, params, suffix, direction):
    """torch.nn.LSTM, in one direction."""
    kernel, recurrent, bias = (
        np.asarray(params[f"{name}{suffix}"], np.float64)[direction]
        for name in ("kernel", "recurrent_kernel", "bias")
    )
    hidden = cell = np.zeros(bias.shape[-1])
    found = []
    for vector in x if direction == 0 else x[::-1]:
        gates = np.einsum("i,igh->gh", vector, kernel) + bias
        gates += np.einsum("h,hgk->gk", hidden, recurrent)
        i, f, o = (special.expit(gates[gate]) for gate in (0, 1, 3))
        cell = f * cell + i * np.tanh(gates[2])
        hidden = o * np.tanh(cell)
        found.append(hidden)
    return np.array(found if direction == 0 else found[::-1])


def bilstm(x, params, suffixes):
    for suffix in suffixes:
        x = np.concatenate([lstm(x, params, suffix, d) for d in (0, 1)], axis=-1)
    return x


def published(params, a, b):
    """HeadlessPairAttnEncoder.forward, or HeadlessSentEncoder's without `b`."""
    share = special.softmax(np.asarray(params["mix"]["weights"], np.float64))
    gamma = float(params["mix"]["gamma"])
    reader = params["reader"]

    def phrase(text):
        x = gamma * np.einsum("l,lwd->wd", share, own_layers(params, text))
        return bilstm(x, reader["bilstm"], ("_0", "_1"))

    s1 = phrase(a)
    if b is None:
        pooled = s1.max(0)
    else:
        s2 = phrase(b)
        similarity = s2 @ s1.T
        s2_s1 = special.softmax(similarity, axis=-1) @ s1
        s1_s2 = special.softmax(similarity.T, axis=-1) @ s2
        u, v = (
            bilstm(np.concatenate(both, axis=1), reader["modeling"], ("",)).max(0)
            for both in ((s1, s1_s2), (s2, s2_s1))
        )
        pooled = np.concatenate([u, v, np.abs(u - v), u * v])
    return mlp(params["sequence_classification"], pooled)


def mlp(head, x):
    for name, activation in (("hidden", np.tanh), ("output", lambda y: y)):
        if name in head:
            kernel, bias = (
                np.asarray(head[name][part], np.float64) for part in ("kernel", "bias")
            )
            x = activation(x @ kernel + bias)
    return x


@pytest.mark.slow
def test_pairs_are_classified_as_published():
    params, run = made()
    found = run(*rows(PAIRS[:2]))
    for row, (a, b) in enumerate(PAIRS[:2]):
        assert_close(found[row], published(params, a, b))


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_elmo_that_is_fine_tuned_reads_the_top_layer(pairs):
    """[last, largest, mean], Howard and Ruder 2018, section 3.3."""
    params, run = made(name="finetuned", pairs=pairs)
    assert params.keys() == {"elmo", "sequence_classification"}
    used = PAIRS[:2] if pairs else tuple((a, ()) for a, _ in PAIRS)
    found = run(*rows(used))

    def pooled(text):
        x = own_layers(params, text)[-1]
        last = np.concatenate([x[-1, :6], x[0, 6:]])
        return np.concatenate([last, x.max(0), x.mean(0)])

    for row, (a, b) in enumerate(used):
        u = pooled(a)
        if pairs:
            v = pooled(b)
            u = np.concatenate([u, v, np.abs(u - v), u * v])
        expected = mlp(params["sequence_classification"], u)
        assert_close(found[row], expected)


@pytest.mark.slow
def test_vectors_of_a_text_are_those_that_it_has_alone():
    params, _ = made()
    given = rows()
    fresh = Marks.of(*given[1:]).fresh
    module = Elmo(CONFIG)
    run = jax.jit(
        lambda chars: module.apply(
            {"params": params["elmo"]}, chars, None, fresh, method="layers"
        )[0]
    )
    found = run(given[0])
    alone = public.Elmo(CONFIG, params["elmo"])
    for row, (a, b) in enumerate(PAIRS):
        both = alone.encode([a, b])
        start = len(a) + 3
        assert_close(found[row, :, 1 : len(a) + 1], both[0])
        there = found[row, :, start : start + len(b)]
        assert_close(there, both[1])
