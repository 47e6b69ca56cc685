"""ELMo's layers against NumPy and torch, and what each direction sees."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.families.elmo import model as elmo
from bert_jax.families.elmo.config import ElmoConfig, flops
from tests.close import assert_close
from tests.families.elmo import elmo_numpy

CONFIG = ElmoConfig(
    vocab_size=30,
    hidden_size=6,
    intermediate_size=10,
    filters=((1, 4), (2, 5), (3, 3)),
    character_size=4,
    max_characters=8,
    cell_clip=0.3,  # so low that it acts
    projection_clip=0.2,
)
OPEN = dataclasses.replace(CONFIG, cell_clip=0.0, projection_clip=0.0)


def random_like(tree, scale=1.0):
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape) * scale, jnp.float32), tree
    )


def lstm_of(config, inputs=5):
    module = elmo.Lstm(config)
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=(2, 3, 7, inputs)), jnp.float32)
    state = (jnp.zeros((3, 2, 10)), jnp.zeros((3, 2, 6)))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, *state)["params"]
    params = random_like(nn.meta.unbox(shapes))
    run = jax.jit(lambda *given: module.apply({"params": params}, *given))
    return params, x, run, state


def model(config=CONFIG, rows=3, words=7):
    module = elmo.Elmo(config)
    rng = np.random.default_rng(2)
    ids = jnp.asarray(rng.integers(1, 262, (rows, words, 8)))
    shapes = jax.eval_shape(module.init, jax.random.key(0), ids, ids)["params"]
    params = nn.meta.unbox(shapes)
    return module, {"params": random_like(params, 0.5)}, ids


def numpy_weights(params, direction):
    kernel, bias = params["kernel"][direction], params["bias"][direction]
    flat = (np.asarray(kernel).reshape(len(kernel), -1), np.asarray(bias).reshape(-1))
    return *flat, np.asarray(params["projection"][direction])


def test_lstm_is_torchs(torch):
    params, x, run, state = lstm_of(OPEN)
    y, _ = run(x, *state)
    for direction in (0, 1):
        kernel, bias, down = numpy_weights(params, direction)
        theirs = torch.nn.LSTM(5, 10, proj_size=6, batch_first=True)
        # Ours are i, j, f, o, theirs i, f, g, o. The forget bias of 1 is theirs to add.
        i, j, f, o = np.split(kernel, 4, axis=1)
        both = np.concatenate([i, f, j, o], axis=1).T
        i, j, f, o = np.split(bias, 4)
        values = {"weight_ih_l0": both[:, :5], "weight_hh_l0": both[:, 5:]}
        values |= {"weight_hr_l0": down.T, "bias_hh_l0": np.zeros(40)}
        values["bias_ih_l0"] = np.concatenate([i, f + 1, j, o])
        theirs.load_state_dict({k: torch.tensor(v.copy()) for k, v in values.items()})
        with torch.no_grad():
            expected, _ = theirs.float()(torch.tensor(np.asarray(x[direction])))
        assert_close(y[direction], expected)


@pytest.mark.slow
def test_windows_with_their_carry_are_one_long_text():
    module, variables, ids = model()
    run = jax.jit(module.apply)
    whole, last = run(variables, ids, ids[:, ::-1])
    carry, parts = None, []
    for window in (slice(0, 3), slice(3, 5), slice(5, 7)):
        given = (ids[:, window], ids[:, ::-1][:, window])
        found, carry = run(variables, *given, carry)
        parts.append(found)
    for i, layer in enumerate(whole):
        together = np.concatenate([part[i] for part in parts], axis=2)
        assert_close(together, layer)
    assert_close(carry, last)


@pytest.mark.slow
def test_directions_are_blind_to_the_other_side():
    module, variables, ids = model(rows=1)
    layers = jax.jit(lambda ids: module.apply(variables, ids, method="layers")[0])
    before, at = layers(ids)[0], 3
    after = layers(ids.at[0, at].set(ids[0, at] % 261 + 1))[0]
    changed = np.abs(before - after) > 1e-7  # [layers, words, 2 x 6]
    forward, backward = changed[1:, :, :6].any((0, 2)), changed[1:, :, 6:].any((0, 2))
    assert forward.tolist() == [False] * at + [True] * 4
    assert backward.tolist() == [True] * (at + 1) + [False] * 3
    assert changed[0].any(-1).tolist() == [place == at for place in range(7)]


@pytest.mark.slow
def test_dropout_is_where_bilm_has_it(monkeypatch):
    """On each layer's input, residual connection included, and on the last output."""

    def halved(x, rate, key):
        return x if key is None else x * (1 - rate)

    monkeypatch.setattr(elmo, "dropout", halved)
    module, variables, ids = model(dataclasses.replace(CONFIG, dropout=0.5), rows=1)
    found, _ = jax.jit(module.apply)(variables, ids, ids, key=jax.random.key(0))
    options = {"n_layers": 2, "cell_clip": 0.3, "proj_clip": 0.2}
    options["use_skip_connections"] = True
    weights = {}
    for i in range(2):
        root = f"RNN_0/RNN/MultiRNNCell/Cell{i}/LSTMCell"
        own = numpy_weights(variables["params"][f"lstm_{i}"], 0)
        names = (f"{root}/W_0", f"{root}/B", f"{root}/W_P_0")
        weights |= dict(zip(names, own, strict=True))
    given = (np.asarray(found[0][0, 0]), weights, 0, options)
    one, two = elmo_numpy.direction(*given, drop=lambda x: x * 0.5)
    assert_close(found[1][0, 0], one)
    assert_close(found[2][0, 0], 0.5 * two)


def test_published_size():
    """The released model has 93.6 million parameters (allenai/bilm-tf's page)."""
    module = elmo.Elmo(ElmoConfig(vocab_size=1))
    ids = jax.ShapeDtypeStruct((1, 1, 50), jnp.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), ids, ids)
    count = sum(x.size for x in jax.tree.leaves(shapes))
    assert count == pytest.approx(93.6e6, rel=1e-3)
    # Twice the parameters for each word and direction, three times, and more for what
    # is convolved at each of a word's characters.
    assert flops(ElmoConfig(vocab_size=1), 1) > 3 * 2 * 2 * (count - 5e6) / 2
