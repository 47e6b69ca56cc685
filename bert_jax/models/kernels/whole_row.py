"""Attention in one TPU kernel, for rows that fit in the chip's memory.

No array of length x length leaves the chip, and the softmax is over a whole row.
Dropout uses the same words as `layers.dropout`, so the same elements are dropped.

Vectors are [batch, length, hidden] as the linear layers have them, with all heads side
by side: no copy takes the heads apart. A product of 128 columns costs no more than one
of 64, so heads are told apart by zeros in the others' columns. Scores are [keys,
queries]: sums over keys are then sums of registers, and a query's values are a row, as
in memory.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu
from jaxtyping import Array, Float, Int

from bert_jax.models.config import MASK_VALUE
from bert_jax.models.kernels.on_mesh import IDS, VECTORS, WORDS, on_mesh
from bert_jax.models.layers import hash_column, row_keys
from bert_jax.types import DropoutKey

_SPECS = (*(VECTORS,) * 3, *(IDS,) * 2, WORDS)
_LANES = 128  # columns of a register, and queries at a time
_BLOCK = 128 * 1024  # maximum elements of an array that a program reads
_LOG2_E = math.log2(math.e)  # the exponential function is one of 2


class _Setting(NamedTuple):
    """The constants of a kernel."""

    size: int  # size of a head
    causal: bool  # a query attends to no position after its own
    window: int  # nor to one farther away, where 0 means no limit
    rate: float  # dropout rate, 0 without dropout
    interpret: bool  # run as JAX operations: for tests, on any device

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        return self.size**-0.5


def whole_row_attention(
    query: Float[Array, "batch length heads head_dim"],
    keys: Float[Array, "batch length heads head_dim"],
    value: Float[Array, "batch length heads head_dim"],
    mask_ids: tuple[Int[Array, "batch #length"], Int[Array, "batch length"]],
    rate: float,
    key: DropoutKey,
    causal: bool = False,
    window: int = 0,
    *,
    interpret: bool = False,
) -> Float[Array, "batch length heads head_dim"]:
    """Computes softmax attention of each query over the keys with its id.

    A length that 128 does not divide is padded to one that it does. The output of a
    query that attends to no key is of no use.

    Args:
      query: Queries of at most `config.LONGEST_WHOLE_ROW` tokens. head_dim is one of
        `config.FUSED_HEAD_DIMS`.
      mask_ids: Ids of queries and keys.
      rate: Dropout rate of the probabilities.
      key: Dropout key. None means evaluation.
      causal: Whether a query attends to no position after its own.
      window: Maximum number of positions it attends to on each side. 0 means all.
      interpret: Whether to run the kernel as JAX operations. Otherwise it needs a TPU.
    """
    batch, length, heads, size = query.shape
    words: Any = None
    if key is not None and rate > 0.0:
        words = row_keys(key, (batch, heads, length))
    end = (0, -length % _LANES)
    three = (jnp.pad(x, ((0, 0), end, (0, 0), (0, 0))) for x in (query, keys, value))
    ids = (
        jnp.pad(x, ((0, 0), end), constant_values=-1)
        for x in (jnp.broadcast_to(mask_ids[0], (batch, length)), mask_ids[1])
    )
    words = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 0), end)), words)
    setting = _Setting(size, causal, window, rate if words else 0.0, interpret)
    return _attend(setting, *three, *ids, words)[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(setting: _Setting, *inputs: Any) -> Array:
    """Takes query, keys, value, the ids of queries and keys, and words."""
    return _forward(setting, *inputs)[0]


def _forward(setting: _Setting, *inputs: Any) -> tuple[Array, tuple]:
    compute = functools.partial(_call, setting, _forward_kernel)
    return on_mesh(compute, _SPECS, (VECTORS,))(*inputs)[0], inputs


def _backward(setting: _Setting, inputs: tuple, gradient: Array) -> tuple:
    compute = functools.partial(_call, setting, _backward_kernel)
    specs = (*_SPECS, VECTORS)
    return (*on_mesh(compute, specs, (VECTORS,) * 3)(*inputs, gradient), *(None,) * 3)


_attend.defvjp(_forward, _backward)


def _call(setting: _Setting, kernel: Any, *inputs: Any) -> tuple[Array, ...]:
    """Runs a kernel for the rows and heads of one device: a program computes some heads
    of a row. The inputs are `_attend`'s and, backward, the output's gradient."""
    batch, length, heads, size = inputs[0].shape
    hidden = heads * size
    lanes = _LANES if hidden % _LANES == 0 else hidden
    groups = hidden // lanes
    max_groups = max(1, _BLOCK // (lanes * length))
    width = lanes * max(n for n in range(1, max_groups + 1) if groups % n == 0)
    # By the number of axes: vectors, ids and words.
    specs = {
        4: pl.BlockSpec((None, length, width), lambda row, i: (row, 0, i)),
        2: pl.BlockSpec((None, 1, length), lambda row, i: (row, 0, 0)),
        3: pl.BlockSpec(
            (None, None, width // size, length), lambda row, i: (row, i, 0, 0)
        ),
    }
    shapes = {
        4: (batch, length, hidden),
        2: (batch, 1, length),
        3: (batch, hidden // width, width // size, length),
    }
    given = jax.tree.leaves(inputs)
    backward = kernel is _backward_kernel
    results = 3 if backward else 1
    found = pl.pallas_call(
        functools.partial(kernel, setting, lanes),
        grid=(batch, hidden // width),
        in_specs=[specs[x.ndim] for x in given],
        out_specs=[specs[4]] * results,
        out_shape=[jax.ShapeDtypeStruct(shapes[4], inputs[0].dtype)] * results,
        scratch_shapes=[tpu.VMEM((length, width), jnp.float32)] * (2 * backward),
        compiler_params=tpu.CompilerParams(
            dimension_semantics=("parallel", "parallel")
        ),
        interpret=setting.interpret,
        name="whole_row_backward" if backward else "whole_row_forward",
    )(*(x.reshape(shapes[x.ndim]) for x in given))
    return tuple(x.reshape(inputs[0].shape) for x in found)


def _product(one: Array, other: Array, axis: int, other_axis: int) -> Array:
    """Sums over one axis of each, in float32."""
    return jax.lax.dot_general(
        one,
        other,
        (((axis,), (other_axis,)), ((), ())),
        # Products of bfloat16 are exact anyway, and Mosaic has no other for them.
        precision=None if one.dtype == jnp.float32 else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


class _Queries(NamedTuple):
    """Some queries of a row, and the values that are the same for all heads."""

    at: Any  # slice of the row
    added: Array  # added to scores [keys, queries]
    positions: Array  # the keys' positions, for dropout

    @classmethod
    def load(cls, setting: _Setting, index: Any, query_ids: Any, key_ids: Any) -> Any:
        at = pl.ds(pl.multiple_of(index * _LANES, _LANES), _LANES)
        shape = (key_ids.shape[1], _LANES)
        of_keys = jnp.broadcast_to(key_ids[...], (_LANES, shape[0])).T
        seen = of_keys == query_ids[:, at]
        iota = functools.partial(jax.lax.broadcasted_iota, jnp.int32, shape)
        after = index * _LANES + iota(1) - iota(0)  # how far a query is after a key
        if setting.causal:
            seen &= after >= 0
        if setting.window:
            seen &= jnp.abs(after) <= setting.window
        added = jnp.where(seen, 0.0, MASK_VALUE * _LOG2_E)
        return cls(at, added, iota(0).astype(jnp.uint32))

    def weights(
        self, setting: _Setting, head: int, query: Array, keys: Array, words: Any
    ) -> tuple[Array, Array, Array | None]:
        """Returns the probabilities before dropout and division by their sums, these
        sums, and which are kept. `query` is zero in other heads' columns."""
        scores = _product(keys, query, 1, 1) * (setting.scale * _LOG2_E) + self.added
        weights = jnp.exp2(scores - jnp.max(scores, axis=0, keepdims=True))
        mass = jnp.sum(weights, axis=0, keepdims=True)
        if not words:
            return weights, mass, None
        first, second = (word[head : head + 1, self.at] for word in words)
        bits = hash_column(first, second, self.positions)
        return weights, mass, bits >= jnp.uint32(round(setting.rate * 2**32))


def _heads(setting: _Setting, lanes: int, width: int) -> Any:
    """Yields each group's columns, with its heads' numbers and their columns in it."""
    for start in range(0, width, lanes):
        heads = range(start // setting.size, (start + lanes) // setting.size)
        own = (slice(n, n + setting.size) for n in range(0, lanes, setting.size))
        yield pl.ds(start, lanes), zip(heads, own, strict=True)


def _mask_other_heads(own: slice, x: Array) -> Array:
    """Sets other heads' columns to zero."""
    column = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.where((column >= own.start) & (column < own.stop), x, jnp.zeros_like(x))


def _apply_dropout(kept: Array | None, x: Array) -> Array:
    return x if kept is None else jnp.where(kept, x, 0.0)


def _forward_kernel(
    setting: _Setting, lanes: int, query, keys, value, query_ids, key_ids, *rest
) -> None:
    *words, output = rest

    def compute(index: Array, _: None) -> None:
        queries = _Queries.load(setting, index, query_ids, key_ids)
        for columns, heads in _heads(setting, lanes, query.shape[1]):
            own_query, own_keys = query[queries.at, columns], keys[:, columns]
            values = value[:, columns].T
            parts = []
            for head, own in heads:
                masked = _mask_other_heads(own, own_query)
                weights, mass, kept = queries.weights(
                    setting, head, masked, own_keys, words
                )
                weights = _apply_dropout(kept, weights).astype(output.dtype)
                mixed = _product(values[own], weights, 1, 0)
                parts.append(mixed / (mass * (1.0 - setting.rate)))
            together = jnp.concatenate(parts, axis=0).T
            output[queries.at, columns] = together.astype(output.dtype)

    jax.lax.fori_loop(0, query.shape[0] // _LANES, compute, None)


def _backward_kernel(
    setting: _Setting, lanes: int, query, keys, value, query_ids, key_ids, *rest
) -> None:
    *words, gradient, to_query, to_keys, to_value, key_sums, value_sums = rest
    factor = 1.0 / (1.0 - setting.rate)
    key_sums[...] = jnp.zeros_like(key_sums)
    value_sums[...] = jnp.zeros_like(value_sums)

    def compute(index: Array, _: None) -> None:
        queries = _Queries.load(setting, index, query_ids, key_ids)
        for columns, heads in _heads(setting, lanes, query.shape[1]):
            own_query, own_keys = query[queries.at, columns], keys[:, columns]
            outer, own_value = gradient[queries.at, columns], value[:, columns]
            turned, parts = own_keys.T, []
            for head, own in heads:
                masked, own_outer = (
                    _mask_other_heads(own, x) for x in (own_query, outer)
                )
                weights, mass, kept = queries.weights(
                    setting, head, masked, own_keys, words
                )
                probs = weights * (1.0 / mass)
                to_probs = _apply_dropout(kept, _product(own_value, own_outer, 1, 1))
                expected = jnp.sum(probs * to_probs, axis=0, keepdims=True)
                to_scores = (probs * (to_probs - expected)).astype(query.dtype)
                mixed = _apply_dropout(kept, probs).astype(query.dtype)
                value_sums[:, columns] += _product(mixed, own_outer, 1, 0)
                key_sums[:, columns] += _product(to_scores, masked, 1, 0)
                parts.append(_product(turned[own], to_scores, 1, 0))
            together = jnp.concatenate(parts, axis=0).T * (setting.scale * factor)
            to_query[queries.at, columns] = together.astype(to_query.dtype)

    jax.lax.fori_loop(0, query.shape[0] // _LANES, compute, None)
    to_keys[...] = (key_sums[...] * (setting.scale * factor)).astype(to_keys.dtype)
    to_value[...] = (value_sums[...] * factor).astype(to_value.dtype)
