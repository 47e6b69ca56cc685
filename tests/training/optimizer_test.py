"""The optimizer against NumPy: BERT's optimization.py, AdamW, LAMB's paper."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.families.elmo import fields as fields_of_elmo
from bert_jax.training import optimizer
from tests.training.optimizer_config import make_config, take_steps


def layer(leading: tuple[int, ...], fill) -> dict:
    """The parameters of one layer, split heads included, or of several stacked."""

    def pair(name, *shape):
        bias = shape[1:] or shape
        return {name: fill((*leading, *shape)), "bias": fill((*leading, *bias))}

    attention = {"query": pair("kernel", 6, 2, 3), "output": pair("kernel", 6, 6)}
    attention["layer_norm"] = pair("scale", 6)
    return {"attention": attention, "layer_norm": pair("scale", 6)}


def model(stacked: bool, fill) -> dict:
    if stacked:
        encoder = {"layers": layer((2,), fill)}
    else:
        encoder = {f"layer_{i}": layer((), fill) for i in range(2)}
    return {
        "embeddings": {
            "word_embeddings": {"embedding": fill((11, 6))},
            "layer_norm": {"scale": fill((6,)), "bias": fill((6,))},
        },
        "encoder": encoder,
        "masked_lm": {
            "dense": {"kernel": fill((6, 6)), "bias": fill((6,))},
            "layer_norm": {"scale": fill((6,)), "bias": fill((6,))},
            "bias": fill((11,)),
        },
        "next_sentence": {"kernel": fill((6, 2)), "bias": fill((2,))},
    }


flat = functools.partial(flatten_dict, sep="/")

# The decayed parameters, written out. Every other one is a bias or in a LayerNorm.
DECAYED = {
    "embeddings/word_embeddings/embedding",
    "masked_lm/dense/kernel",
    "next_sentence/kernel",
} | {
    f"encoder/{name}/attention/{part}/kernel"
    for name in ("layer_0", "layer_1", "layers")
    for part in ("query", "output")
}


def reference(config, params, gradients, dtype) -> dict[str, np.ndarray]:
    """The updates of optimization.py on flat dicts, or of AdamW, or LAMB's algorithm
    2 with one layer for each array, of stacked ones for each index."""
    o = config.optimizer
    params = {name: np.asarray(value, dtype) for name, value in params.items()}
    m = {name: np.zeros_like(value) for name, value in params.items()}
    v = {name: np.zeros_like(value) for name, value in params.items()}
    one = dtype(1)
    for step, gradient in enumerate(gradients):
        left = one - dtype(step) / dtype(config.train.num_steps)
        lr = dtype(o.learning_rate) * left ** dtype(o.decay_power)
        if step < o.warmup_steps:
            lr = dtype(o.learning_rate) * dtype(step) / dtype(o.warmup_steps)
        g = {name: np.asarray(value, dtype) for name, value in gradient.items()}
        norm = np.sqrt(sum((value**2).sum() for value in g.values()))
        for name in params:
            if o.clip_norm:
                g[name] = g[name] * dtype(o.clip_norm) / max(norm, dtype(o.clip_norm))
            m[name] = dtype(o.beta1) * m[name] + (one - dtype(o.beta1)) * g[name]
            v[name] = dtype(o.beta2) * v[name] + (one - dtype(o.beta2)) * g[name] ** 2
            m_hat, v_hat = m[name], v[name]
            if o.name in ("adamw", "lamb"):
                m_hat = m_hat / (one - dtype(o.beta1) ** (step + 1))
                v_hat = v_hat / (one - dtype(o.beta2) ** (step + 1))
            update = m_hat / (np.sqrt(v_hat) + dtype(o.eps))
            if name in DECAYED:
                update = update + dtype(o.weight_decay) * params[name]
                if o.name == "lamb":
                    parts = range(len(update)) if "/layers/" in name else [slice(None)]
                    for part in parts:
                        weight = np.sqrt((params[name][part] ** 2).sum())
                        length = np.sqrt((update[part] ** 2).sum())
                        if weight and length:  # else 1, as in the authors' code
                            update[part] *= weight / length
            params[name] = params[name] - lr * update
    return params


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "stacked"),
    [
        ({}, False),
        ({"clip_norm": 0.0}, False),
        ({"decay_power": 0.5}, False),
        ({"name": "adamw"}, False),
        # Only LAMB distinguishes stacked layers: each has a separate norm.
        ({"name": "lamb"}, False),
        ({"name": "lamb"}, True),
        ({"name": "lamb", "weight_decay": 0.0}, True),
    ],
    ids=str,
)
def test_forty_steps_equal_numpy(fields, stacked):
    """From the first of warmup to the last, whose rate is 0."""
    rng = np.random.default_rng(0)

    def normal(shape):
        return rng.normal(size=shape).astype(np.float32)

    config = make_config(num_steps=40, **fields)
    params = model(stacked, normal)
    # Norms on both sides of clip_norm.
    scales = [np.float32(0.01 * (i % 20)) for i in range(40)]
    scaled = lambda tree, scale: jax.tree.map(lambda g: g * scale, tree)  # noqa: E731
    gradients = [scaled(model(stacked, normal), scale) for scale in scales]
    norms = [float(optax.tree.norm(gradient)) for gradient in gradients]
    assert min(norms) < 1 < max(norms)

    result = flat(take_steps(config, params, gradients))
    flat_gradients = [flat(gradient) for gradient in gradients]
    single = reference(config, flat(params), flat_gradients, np.float32)
    double = reference(config, flat(params), flat_gradients, np.float64)
    assert result.keys() == double.keys()
    for name, value in result.items():
        for expected, limit in ((single, 1e-5), (double, 1e-4)):
            limits = {"rtol": limit, "atol": limit, "err_msg": name}
            np.testing.assert_allclose(value, expected[name], **limits)
        assert np.abs(value - flat(params)[name]).max() > 1e-2, name


@pytest.mark.parametrize("zero", ["parameters", "gradients"])
def test_lamb_without_a_norm_takes_the_update_as_it_is(zero):
    config = make_config(name="lamb", warmup_steps=0, weight_decay=0.0)
    params = {"kernel": np.full((2, 1), float(zero != "parameters"), np.float32)}
    gradients = {"kernel": np.full((2, 1), float(zero != "gradients"), np.float32)}
    moved = take_steps(config, params, [gradients])
    expected = params["kernel"] - 1e-2 * gradients["kernel"]
    np.testing.assert_allclose(moved["kernel"], expected, rtol=1e-5)


@pytest.mark.parametrize("stacked", [False, True])
def test_decay_mask_is_by_name(stacked):
    mask = flat(optimizer.decay_mask(model(stacked, np.zeros)))
    assert {name for name, decayed in mask.items() if decayed} == DECAYED & mask.keys()
    assert sum(mask.values()) == (5 if stacked else 7)


@pytest.mark.parametrize(
    ("path", "shape", "decays"),
    [
        ("rms_norm/scale", (8,), False),
        ("encoder/layers/rms_norm/weight", (2, 8), False),
        ("attention/query_norm/scale", (2, 4), False),
        ("unbiased/kernel", (8, 8), True),
        ("layer_norm_free/kernel", (8, 8), True),
        ("relative_bias/embedding", (32, 2), False),
        ("bilstm/bias_0", (2, 4, 8), False),
        ("crf/first", (3,), False),
        ("gamma", (), False),
    ],
)
def test_arrays_of_one_axis_and_biases_do_not_decay(path, shape, decays):
    params = unflatten_dict({path: np.zeros(shape)}, sep="/")
    assert flat(optimizer.decay_mask(params)) == {path: decays}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_adam", "lamb"])
def test_parameters_that_the_loss_does_not_use_stay(name):
    """Decay would shrink a pooler that gets no gradient. One that does, decays."""
    params = {"bert": {"pooler": {"kernel": jnp.ones((2, 2))}}}
    params |= {"poolers": {"kernel": jnp.ones((2, 2))}}
    adam = optimizer.make_optimizer(make_config(name=name), ("bert/pooler",))
    zeros, state = jax.tree.map(jnp.zeros_like, params), adam.init(params)
    for _ in range(3):
        updates, state = adam.update(zeros, state, params, learning_rate=0.1)
    assert not updates["bert"]["pooler"]["kernel"].any()
    assert updates["poolers"]["kernel"].all()


def test_adagrad_is_tensorflows():
    """bilm: AdagradOptimizer with initial_accumulator_value=1.0, clipped by norm."""
    fields_of_elmo.register()
    fields = {"name": "adagrad", "learning_rate": 0.2, "warmup_steps": 0}
    fields |= {"decay_power": 0.0, "weight_decay": 0.0, "clip_norm": 10.0}
    config = make_config(num_steps=4, **fields)
    rng = np.random.default_rng(0)
    gradients = [rng.normal(size=6).astype(np.float32) * s for s in (0.1, 1, 30, 2)]
    value, squares = np.full(6, 0.5), np.ones(6)
    for gradient in gradients:
        own = gradient * min(1, 10 / np.linalg.norm(gradient))
        squares += own**2
        value = value - 0.2 * own / np.sqrt(squares)
    given = [{"w": gradient} for gradient in gradients]
    params = take_steps(config, {"w": jnp.full(6, 0.5)}, given)
    np.testing.assert_allclose(params["w"], value, rtol=1e-5)
