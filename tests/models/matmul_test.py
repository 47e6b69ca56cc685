"""Products and their gradients, against NumPy in double precision."""

import functools
from collections import Counter
from collections.abc import Iterator
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval

from bert_jax.models.heads import BertForPreTraining
from bert_jax.models.matmul import linear, multiplied_einsum
from tests.close import assert_close
from tests.micro import init_pretraining, small_config

SPECS = {
    "ri,oi->ro": ((6, 8), (5, 8)),
    "ri,io->ro": ((6, 8), (8, 5)),
    "bqhd,bkhd->bhqk": ((2, 4, 3, 8), (2, 5, 3, 8)),
    "bhqk,bkhd->bqhd": ((2, 3, 4, 5), (2, 5, 3, 8)),
}


def arrays(spec: str, dtype: str) -> list[jax.Array]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in SPECS[spec]]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("bfloat16", 2**-7)])
def test_values_and_gradients(spec, dtype, error):
    a, b = arrays(spec, dtype)

    @jax.jit
    def product(a, b):
        return multiplied_einsum(spec, a, b, "float32")

    found, gradients = jax.vjp(product, a, b)
    assert found.dtype == jnp.float32
    wide = [np.asarray(x, np.float64) for x in (a, b)]
    assert_close(found, np.einsum(spec, *wide))
    cotangent = np.random.default_rng(1).normal(size=found.shape)
    left, right, out = spec.replace("->", ",").split(",")
    expected = (
        np.einsum(f"{out},{right}->{left}", cotangent, wide[1]),
        np.einsum(f"{out},{left}->{right}", cotangent, wide[0]),
    )
    found = gradients(jnp.float32(cotangent))
    for x, own, other in zip((a, b), found, expected, strict=True):
        assert own.dtype == x.dtype
        scale = np.abs(other).max()
        np.testing.assert_allclose(np.float64(own), other, rtol=0, atol=error * scale)


@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, (1, 1)), (3, (65, 7)), (40, (128, 30))]
)
def test_linear_layer_of_any_size_in_bfloat16(rows, sizes):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(rows, sizes[0])), jnp.bfloat16)
    kernel = jnp.asarray(rng.normal(size=sizes), jnp.float32)
    bias = jnp.asarray(rng.normal(size=sizes[1]), jnp.float32)

    names = ("embed", "mlp")

    @jax.jit
    def both(x, kernel, bias, cotangent):
        found, pull = jax.vjp(functools.partial(linear, names), x, kernel, bias)
        return found, *pull(cotangent)

    cotangent = jnp.asarray(rng.normal(size=(rows, sizes[1])), jnp.bfloat16)
    found = both(x, kernel, bias, cotangent)
    kernel = kernel.astype(x.dtype)  # as it is multiplied
    x, kernel, cotangent = (np.float64(array) for array in (x, kernel, cotangent))
    expected = (
        *(x @ kernel + np.float64(bias), cotangent @ kernel.T, x.T @ cotangent),
        cotangent.sum(axis=0),
    )
    dtypes = [array.dtype for array in found]
    assert dtypes == [jnp.bfloat16] * 2 + [jnp.float32] * 2
    # What is added to other devices' sums is not rounded to bfloat16.
    errors = (2**-7, 2**-7, 1e-5, 1e-5)
    for own, other, error in zip(found, expected, errors, strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(np.float64(own), other, rtol=0, atol=error * scale)


def products_of(jaxpr) -> Iterator[tuple[str, ...]]:
    """The dtypes of the two operands of each matrix product, inner ones included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield tuple(str(operand.aval.dtype) for operand in equation.invars)
        is_leaf = lambda x: hasattr(x, "eqns")  # noqa: E731
        for parameter in jax.tree.leaves(equation.params, is_leaf=is_leaf):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from products_of(inner)


def test_products_mix_no_dtypes():
    """float32 x bfloat16 runs in float32. On a GPU or TPU only the next sentence head,
    of two outputs, multiplies in float32: its three products."""
    config = small_config(num_hidden_layers=1, dtype="bfloat16")
    ids = jnp.ones((2, 8), jnp.int32)
    key = jax.random.key(0)

    def loss(params):
        inputs = (ids, ids, ids, ids[:, :2], key)
        logits = BertForPreTraining(config).apply({"params": params}, *inputs)
        return sum(jnp.sum(x**2) for x in logits.values())

    params = nn.meta.unbox(jax.eval_shape(lambda: init_pretraining(config, key)))
    with mock.patch.object(jax.lax, "platform_dependent", elsewhere):
        jaxpr = jax.make_jaxpr(jax.grad(loss))(params).jaxpr
    # Without what nothing reads: the last layer's output at other places.
    jaxpr, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    found = Counter(products_of(jaxpr))
    # A layer has six linear products and two in attention. Then come the pooler and
    # the masked LM head's two. Each has two in the backward pass.
    assert found[("bfloat16", "bfloat16")] == 3 * (8 + 1 + 2)
    assert found[("float32", "float32")] == 3
    assert len(found) == 2


def elsewhere(*operands, default, **platforms):
    """`jax.lax.platform_dependent` on a platform without a specific branch."""
    return default(*operands)
