"""Muon against NumPy, for split heads and stacked layers, and Adam's share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.training import optimizer
from tests.close import GRADIENT_TERMS, assert_close
from tests.micro import error_line
from tests.training.optimizer_config import make_config, take_steps

SHAPES = {
    "attention/query": (6, 2, 3),
    "attention/output": (2, 3, 6),
    "intermediate": (6, 8),
    "output": (8, 6),
}
FIELDS = {"name": "muon", "warmup_steps": 0, "eps": 1e-7, "clip_norm": 0.0}


def model(random, *, stacked):
    """Two layers' arrays by path, an embedding and a head."""
    found = {"masked_lm/dense/kernel": random.normal(size=(6, 6))}
    found["embeddings/word_embeddings/embedding"] = random.normal(size=(11, 6))
    for name, shape in SHAPES.items():
        both = random.normal(size=(2, *shape))
        if stacked:
            found[f"encoder/layers/{name}/kernel"] = both
        else:
            for layer in (0, 1):
                found[f"encoder/layer_{layer}/{name}/kernel"] = both[layer]
    return {name: value.astype(np.float32) for name, value in found.items()}


def orthogonal(matrix):
    """Newton and Schulz's five steps, as published."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (np.linalg.norm(wide) + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x if wide is matrix else x.T


def reference(config, params, gradients, inputs):
    """One matrix [inputs, outputs] after these gradients."""
    o, momentum = config.optimizer, np.zeros((inputs, params.size // inputs))
    matrix = params.reshape(momentum.shape).astype(np.float64)
    for step, gradient in enumerate(gradients):
        gradient = gradient.reshape(matrix.shape)
        momentum = 0.95 * momentum + 0.05 * gradient
        ahead = 0.95 * momentum / (1 - 0.95 ** (step + 2))
        ahead += 0.05 * gradient / (1 - 0.95 ** (step + 1))
        update = 0.2 * max(matrix.shape) ** 0.5 * orthogonal(ahead)
        rate = o.learning_rate * (1 - step / config.train.num_steps)
        matrix -= rate * (update + o.weight_decay * matrix)
    return matrix.reshape(params.shape)


@pytest.mark.slow
@pytest.mark.parametrize("stacked", [False, True])
def test_muon_is_numpys_and_adam_has_the_rest(stacked):
    config = make_config(**FIELDS)
    params = model(np.random.default_rng(0), stacked=stacked)
    gradients = [model(np.random.default_rng(n), stacked=stacked) for n in range(1, 9)]
    given = [unflatten_dict(gradient, sep="/") for gradient in gradients]
    found = take_steps(config, unflatten_dict(params, sep="/"), given)
    config_of_adamw = make_config(**{**FIELDS, "name": "adamw"})
    adamw = take_steps(config_of_adamw, unflatten_dict(params, sep="/"), given)
    for name in SHAPES:
        inputs = 8 if name == "output" else 6
        for layer in (0, 1):
            path = f"encoder/layer_{layer}/{name}/kernel"
            place = f"layer_{layer}"
            at = slice(None)
            if stacked:
                path, place, at = f"encoder/layers/{name}/kernel", "layers", layer
            ours = found["encoder"][place]
            for part in [*name.split("/"), "kernel"]:
                ours = ours[part]
            each = [gradient[path][at] for gradient in gradients]
            expected = reference(config, params[path][at], each, inputs)
            assert_close(ours[at], expected, terms=GRADIENT_TERMS)
    for part in ("embeddings", "masked_lm"):
        jax.tree.map(np.testing.assert_array_equal, found[part], adamw[part])


@pytest.mark.parametrize(
    ("path", "names", "order"),
    [
        ("encoder/layer_0/experts/kernel", ("experts", "embed", "mlp"), (0, 1, 2)),
        ("encoder/layer_0/experts/kernel", (None, "embed", "mlp"), (0, 1, 2)),
        ("encoder/layer_0/experts/kernel", (), (0, 1, 2)),
        ("encoder/layer_0/experts/kernel", ("embed", "experts", "mlp"), (1, 0, 2)),
        ("encoder/layer_0/experts/kernel", ("e", "embed", "rank"), (0, 1, 2)),
        ("encoder/layer_0/down", (None, "mlp", "embed"), (0, 1, 2)),
        ("encoder/layers/up", ("layers", "embed", "mlp"), (0, 1, 2)),
    ],
)
def test_muon_has_a_matrix_for_each_expert(path, names, order):
    """As the names of the axes say. `order` is that of experts, inputs and outputs."""
    config, rng = make_config(**FIELDS), np.random.default_rng(0)
    params, *gradients = rng.normal(size=(4, 3, 6, 8)).astype(np.float32)
    moved = np.argsort(order)
    given = [{path: x.transpose(moved)} for x in (params, *gradients)]
    first, *rest = (unflatten_dict(x, sep="/") for x in given)
    axes = {path: names} if names else {}
    ours = flatten_dict(take_steps(config, first, rest, axes), sep="/")[path]
    ours = np.asarray(ours).transpose(order)
    for expert in range(3):
        each = [gradient[expert] for gradient in gradients]
        expected = reference(config, params[expert], each, 6)
        assert_close(ours[expert], expected, terms=GRADIENT_TERMS)


def test_muon_refuses_a_model_without_an_encoder():
    transformation = optimizer.make_optimizer(make_config(**FIELDS))
    other = {"elmo": {"forward": {"kernel": jnp.ones((3, 4))}}}
    line = error_line(transformation.init, other)
    assert "muon: no matrix of a Transformer encoder" in line
