"""The model against a NumPy transcription of its equations, and its variants."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from bert_jax.family import bert_config
from bert_jax.models.config import pretraining_flops
from bert_jax.models.encoder import Packed
from bert_jax.models.heads import BertForPreTraining, count_parameters
from configs import base, large, tiny
from tests.close import assert_close
from tests.micro import error_line, init_pretraining
from tests.models.small_bert import CONFIG, apply, initial_params, random_params


@pytest.mark.slow
def test_sinusoidal_positions_differ_by_distance_alone():
    kinds = ("normal", "sinusoidal")
    configs = [dataclasses.replace(CONFIG, position_initializer=x) for x in kinds]
    plain, waves = (jax.device_get(initial_params(config)) for config in configs)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), plain, waves)
    paths = [path for path, value in jax.tree.leaves_with_path(changed) if value]
    changed = {*map(jax.tree_util.keystr, paths)}
    assert changed == {"['bert']['embeddings']['position_embeddings']['embedding']"}
    table = waves["bert"]["embeddings"]["position_embeddings"]["embedding"]
    width, spread = CONFIG.hidden_size, CONFIG.initializer_range
    np.testing.assert_allclose((table**2).mean(), spread**2, rtol=1e-5)
    distance = np.arange(16)[:, None] - np.arange(16)
    rates = 100.0 ** (-np.arange(0, width, 2) / width)
    similarity = 2 * spread**2 * np.cos(distance[..., None] * rates).sum(-1)
    np.testing.assert_allclose(table @ table.T, similarity, atol=1e-7)


def inputs(batch=4, length=16, vocab=50):
    rng = np.random.default_rng(0)
    lengths = [length, 9, 5, 12][:batch]
    ids = rng.integers(0, vocab, (batch, length)).astype(np.int32)
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int32)
    segments = (np.arange(length) >= 4).astype(np.int32) * mask
    positions = np.stack([rng.permutation(5)[:3] for _ in range(batch)])
    return tuple(map(jnp.asarray, (ids, mask, segments, positions.astype(np.int32))))


def numpy_bert(params, config, ids, mask, segments, positions):
    """Section 3 and Vaswani et al. 2017, in float64, one head at a time."""
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def norm(x, p):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-12) * p["scale"] + p["bias"]

    def gelu(x):
        return x * (1 + erf(x / np.sqrt(2))) / 2

    bert = params["bert"]
    table = bert["embeddings"]
    x = table["word_embeddings"]["embedding"][ids]
    x = x + table["token_type_embeddings"]["embedding"][segments]
    x = x + table["position_embeddings"]["embedding"][: ids.shape[1]]
    x = norm(x, table["layer_norm"])
    for index in range(config.num_hidden_layers):
        p = bert["encoder"][f"layer_{index}"]
        attended = np.zeros_like(x)
        for head in range(config.num_attention_heads):
            q, k, v = (
                x @ p["attention"][name]["kernel"][:, head]
                + p["attention"][name]["bias"][head]
                for name in ("query", "key", "value")
            )
            scores = q @ k.swapaxes(-1, -2) / np.sqrt(config.head_dim)
            scores = np.where(mask[:, None, :] == 1, scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            attended += weights @ v @ p["attention"]["output"]["kernel"][head]
        attended += p["attention"]["output"]["bias"]
        x = norm(x + attended, p["attention_layer_norm"])
        inner = gelu(x @ p["intermediate"]["kernel"] + p["intermediate"]["bias"])
        x = norm(
            x + inner @ p["output"]["kernel"] + p["output"]["bias"], p["layer_norm"]
        )
    pooled = np.tanh(x[:, 0] @ bert["pooler"]["kernel"] + bert["pooler"]["bias"])
    head = params["masked_lm"]
    chosen = np.take_along_axis(x, positions[:, :, None], axis=1)
    chosen = norm(
        gelu(chosen @ head["dense"]["kernel"] + head["dense"]["bias"]),
        head["layer_norm"],
    )
    masked_lm = chosen @ table["word_embeddings"]["embedding"].T + head["bias"]
    nsp = params["next_sentence"]
    return masked_lm, pooled @ nsp["kernel"] + nsp["bias"]


@pytest.mark.slow
def test_equals_the_equations():
    params = random_params(CONFIG)
    batch = inputs()
    ours = apply(CONFIG, params, *batch)
    masked_lm, next_sentence = numpy_bert(params, CONFIG, *batch)
    scale = np.abs(masked_lm).max()
    np.testing.assert_allclose(ours["masked_lm_logits"], masked_lm, atol=2e-6 * scale)
    assert_close(ours["next_sentence_logits"], next_sentence)


@functools.cache
def loss_and_gradient(config):
    key, batch = jax.random.key(7), inputs()
    # What is computed again does not change the initial values.
    params = initial_params(dataclasses.replace(config, remat="none"))

    def loss(params):
        out = BertForPreTraining(config).apply({"params": params}, *batch, key)
        return jnp.sum(out["masked_lm_logits"] ** 2)

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"remat": "dots"}, {"scan_layers": True, "remat": "full"}]
)
def test_variants_give_the_same_with_dropout(change):
    other = dataclasses.replace(CONFIG, **change)
    results = [loss_and_gradient(config) for config in (CONFIG, other)]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    tables = (grad["bert"]["embeddings"]["word_embeddings"] for _, grad in results)
    assert_close(*(table["embedding"] for table in tables))


@pytest.mark.slow
def test_remat_computes_again_what_it_says():
    batch, products = inputs(), {}
    for remat in ("none", "full", "dots"):
        config = dataclasses.replace(CONFIG, remat=remat)

        def loss(params, config=config):
            out = BertForPreTraining(config).apply({"params": params}, *batch)
            return jnp.sum(out["masked_lm_logits"])

        jaxpr = jax.make_jaxpr(jax.grad(loss))(initial_params(CONFIG))
        products[remat] = str(jaxpr).count("dot_general[")
    # A layer has six linear products, and attention two.
    layers = CONFIG.num_hidden_layers
    assert products["dots"] == products["none"] + 2 * layers
    assert products["full"] == products["none"] + 8 * layers


@pytest.mark.slow
def test_dropout_draws_and_evaluation_does_not():
    params = random_params(CONFIG)
    batch = inputs()

    def logits(key):
        return apply(CONFIG, params, *batch, key)["masked_lm_logits"]

    assert not np.allclose(logits(jax.random.key(0)), logits(jax.random.key(1)))
    assert np.array_equal(logits(jax.random.key(0)), logits(jax.random.key(0)))
    assert np.array_equal(logits(None), logits(None))


@pytest.mark.slow
def test_padding_does_not_reach_the_tokens():
    params = random_params(CONFIG)
    ids, mask, segments, positions = inputs()
    one = apply(CONFIG, params, ids, mask, segments, positions)
    other_ids = jnp.where(mask == 1, ids, 7)
    two = apply(CONFIG, params, other_ids, mask, segments, positions)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_bfloat16_stays_near_float32():
    params = random_params(CONFIG)
    batch = inputs()
    half = dataclasses.replace(CONFIG, dtype="bfloat16")
    exact = apply(CONFIG, params, *batch)
    rough = apply(half, params, *batch)
    for name in exact:
        assert rough[name].dtype == jnp.float32
        scale = np.abs(exact[name]).max()
        np.testing.assert_allclose(rough[name], exact[name], atol=0.05 * scale)
        assert not np.array_equal(rough[name], exact[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "stacked", "parameters"),
    [(base, False, 109_482_240), (large, True, 335_141_888)],
)
def test_parameters_of_the_paper_without_allocating(module, stacked, parameters):
    config = bert_config(module.get_config().model, 30522)
    config = dataclasses.replace(config, scan_layers=stacked)
    init = functools.partial(init_pretraining, config)
    shapes = jax.eval_shape(init, jax.random.key(0))
    assert count_parameters(nn.meta.unbox(shapes)["bert"]) == parameters


def test_flops_are_those_of_the_paper_sizes():
    small = bert_config(base.get_config().model, 30522)
    big = bert_config(large.get_config().model, 30522)
    assert pretraining_flops(small, 128, 20) == pytest.approx(69.9e9, rel=1e-3)
    assert pretraining_flops(small, 512, 77) == pytest.approx(301e9, rel=1e-3)
    assert pretraining_flops(big, 128, 20) == pytest.approx(240.6e9, rel=1e-3)
    assert pretraining_flops(big, 512, 77) == pytest.approx(1020e9, rel=1e-3)


@pytest.mark.slow
def test_initial_values_are_those_of_the_paper():
    config = dataclasses.replace(CONFIG, vocab_size=5000, num_hidden_layers=1)
    params = initial_params(config)
    table = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    # A normal cut at two standard deviations keeps 0.8796 of its spread.
    assert float(jnp.std(table)) == pytest.approx(0.02 * 0.8796, rel=0.02)
    assert float(jnp.abs(table).max()) <= 0.04 + 1e-6
    assert not params["masked_lm"]["bias"].any()
    assert (params["masked_lm"]["layer_norm"]["scale"] == 1).all()


@pytest.mark.parametrize(
    ("field", "value"), [("num_attention_heads", 7), ("dtype", "float16")]
)
def test_config_field_that_is_wrong_is_named(field, value):
    fields = tiny.get_config("plain").model
    fields[field] = value
    assert f"config.model.{field}=" in error_line(bert_config, fields, 8000)


def test_too_long_a_sequence_is_refused():
    ids = jnp.zeros((1, 17), jnp.int32)
    given = (CONFIG, random_params(CONFIG), ids, ids, ids, ids[:, :1])
    line = error_line(apply, *given, error=ValueError)
    assert "max_position_embeddings=16" in line


# Packed sequences are encoded as if each were alone.


PACKED = [[7, 5, 4], [9, 6]]  # tokens of the sequences of two rows


def sequences(changed=None):
    """The sequences of PACKED, packed and one a row: batches for the model.

    `changed`: the number of a sequence that gets other ids.
    """
    rng = np.random.default_rng(0)
    alone, rows, sizes = [], [], [(r, n) for r, row in enumerate(PACKED) for n in row]
    packed = np.zeros((5, len(PACKED), 16), np.int32)
    columns = np.zeros((len(PACKED), 6), np.int32), np.zeros((len(PACKED), 3), np.int32)
    used = [0] * len(PACKED)
    for number, (row, size) in enumerate(sizes):
        ids = rng.integers(0, 50, size)
        other = rng.integers(0, 50, size)
        ids = other if number == changed else ids
        segments = (np.arange(size) > size // 2).astype(int)
        masked = rng.permutation(size)[:2]
        padded = [np.pad(x, (0, 16 - size)) for x in (ids, ids * 0 + 1, segments)]
        alone.append((*padded, masked))
        start, index = used[row], len([r for r, _ in sizes[:number] if r == row])
        values = (ids, 1, segments, index + 1, np.arange(size))
        for column, value in zip(packed, values, strict=True):
            column[row, start : start + size] = value
        columns[0][row, 2 * index : 2 * index + 2] = masked + start
        columns[1][row, index] = start
        rows.append((row, index))
        used[row] += size
    one = tuple(jnp.asarray(np.stack(x), jnp.int32) for x in zip(*alone, strict=True))
    ids, mask, segments, numbers, places = map(jnp.asarray, packed)
    where = Packed(numbers, places, jnp.asarray(columns[1]))
    return one, (ids, mask, segments, jnp.asarray(columns[0]), None, where), rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [{}, {"scan_layers": True, "remat": "full"}],
    ids=["unrolled", "scan_remat"],
)
def test_packed_sequences_are_encoded_as_if_alone(variant):
    config = dataclasses.replace(CONFIG, **variant)
    params = random_params(config)
    one, packed, rows = sequences()
    alone, together = apply(config, params, *one), apply(config, params, *packed)
    assert together["next_sentence_logits"].shape == (2, 3, 2)
    for number, (row, index) in enumerate(rows):
        for name, mine in (
            ("masked_lm_logits", np.s_[row, 2 * index : 2 * index + 2]),
            ("next_sentence_logits", np.s_[row, index]),
        ):
            wanted = alone[name][number]
            np.testing.assert_allclose(
                together[name][mine], wanted, atol=1e-5 * np.abs(wanted).max()
            )


@pytest.mark.slow
@pytest.mark.parametrize("changed", [1, 3])
def test_packed_sequence_changes_no_bit_of_its_neighbors(changed):
    params = random_params(CONFIG)
    before, after = (
        apply(CONFIG, params, *sequences(number)[1]) for number in (None, changed)
    )
    for number, (row, index) in enumerate(sequences()[2]):
        same = [
            np.array_equal(before[name][mine], after[name][mine])
            for name, mine in (
                ("masked_lm_logits", np.s_[row, 2 * index : 2 * index + 2]),
                ("next_sentence_logits", np.s_[row, index]),
            )
        ]
        assert same == [number != changed] * 2
