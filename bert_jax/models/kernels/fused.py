"""Attention in one GPU kernel: no array of length x length leaves the chip.

The method is FlashAttention's (Dao et al. 2022, Dao 2023): the softmax over blocks of
keys, and its probabilities computed again in the backward pass. Dropout uses the same
words as `layers.dropout`, so the same elements are dropped.

Queries, keys and values come in one array and their gradients leave in one, so that a
single product computes them, and nothing is sliced or joined in memory. The backward
pass sums the gradients of their biases, too, while it has those of the vectors at hand.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from bert_jax.models.config import MASK_VALUE
from bert_jax.models.kernels.on_mesh import IDS, VECTORS, WORDS, on_mesh
from bert_jax.models.layers import hash_column, row_keys
from bert_jax.types import DropoutKey

_SPECS = (VECTORS, IDS, IDS, WORDS)
_LOG2_E = math.log2(math.e)  # the exponential function is one of 2 on a GPU


class Tiling(NamedTuple):
    """How the kernels divide a row of one head."""

    block: int  # queries or keys at a time: a power of 2 that divides the length
    # A program of the backward pass computes a whole row of one head: five products of
    # each pair of blocks. Otherwise it computes the gradients of one block of keys, and
    # those for the same block of queries: seven.
    whole: bool = False
    stages: int = 2  # loads ahead of the products, in the backward pass


def tile_sizes(length: int, size: int, dtype: Any) -> Tiling:
    """Returns the fastest blocks on an H200 for bfloat16 vectors of 64.

    Args:
      length: Length of a row, a multiple of 16.
      size: Size of the vectors.
      dtype: Dtype of the vectors.
    """
    block = next(block for block in (64, 32, 16) if length % block == 0)
    small = dtype == jnp.bfloat16 and size <= 64
    return Tiling(block, small and length <= 2 * block, 3 if small else 2)


class _Setting(NamedTuple):
    """The constants of a kernel."""

    scale: float  # factor of the scores
    causal: bool  # a query attends to no position after its own
    window: int  # nor to one farther away, where 0 means no limit
    rate: float  # dropout rate, 0 without dropout
    tiling: Tiling  # sizes of blocks
    biased: bool  # the backward pass computes the biases' gradients
    interpret: bool  # run as JAX operations: for tests, on any device


def fused_attention(
    packed: Float[Array, "batch length heads 3 head_dim"],
    mask_ids: tuple[Int[Array, "batch #length"], Int[Array, "batch length"]],
    rate: float,
    key: DropoutKey,
    causal: bool = False,
    window: int = 0,
    *,
    bias: Float[Array, "heads 3 head_dim"] | None = None,
    interpret: bool = False,
) -> Float[Array, "batch length heads head_dim"]:
    """Computes softmax attention of each query over the keys with its id.

    Args:
      packed: Queries, keys and values. head_dim is one of `config.FUSED_HEAD_DIMS`.
      mask_ids: Ids of queries and keys. One id for all queries of a row is faster.
      rate: Dropout rate of the probabilities.
      key: Dropout key. None means evaluation.
      causal: Whether a query attends to no position after its own.
      window: Maximum number of positions it attends to on each side. 0 means all.
      bias: Biases that are part of `packed` already, as a constant. Their gradient is
        computed here.
      interpret: Whether to run the kernel as JAX operations. Otherwise it needs a GPU.
    """
    batch, length, heads, _, size = packed.shape
    query_ids: Array | None = None
    if mask_ids[0].shape[1] == 1:  # the term added to a key's scores
        key_ids = jnp.where(mask_ids[0] == mask_ids[1], 0.0, MASK_VALUE * _LOG2_E)
    else:
        query_ids, key_ids = mask_ids
    words: tuple[Array, ...] | None = None
    if key is not None and rate > 0.0:
        words = row_keys(key, (batch, heads, length))
    if padded := -length % 16:
        wider = ((0, 0), (0, padded), (0, 0), (0, 0), (0, 0))
        packed = jnp.pad(packed, wider)
        if query_ids is None:
            key_ids = jnp.pad(key_ids, wider[:2], constant_values=MASK_VALUE * _LOG2_E)
        else:  # padding attends only to padding
            query_ids, key_ids = (
                jnp.pad(x, wider[:2], constant_values=-1) for x in (query_ids, key_ids)
            )
        if words is not None:
            words = tuple(jnp.pad(word, ((0, 0), *wider[:2])) for word in words)
    tiles = tile_sizes(length + padded, size, packed.dtype)
    rate = rate if words else 0.0
    biased = bias is not None
    setting = _Setting(size**-0.5, causal, window, rate, tiles, biased, interpret)
    return _attend(setting, bias, packed, key_ids, query_ids, words)[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(setting: _Setting, bias: Array | None, *inputs: Any) -> Array:
    """Takes the inputs of `_forward_call`."""
    return _forward(setting, bias, *inputs)[0]


def _forward(setting: _Setting, bias: Array | None, *inputs: Any) -> tuple:
    del bias
    compute = functools.partial(_forward_call, setting)
    output, log_sum = on_mesh(compute, _SPECS, (VECTORS, WORDS))(*inputs)
    return output, (*inputs, output, log_sum)


def _backward(setting: _Setting, residuals: tuple, gradient: Array) -> tuple:
    compute = functools.partial(_backward_call, setting)
    in_specs = (*_SPECS, VECTORS, WORDS, VECTORS)
    out_specs = (VECTORS,) * (1 + setting.biased)
    to_packed, *sums = on_mesh(compute, in_specs, out_specs)(*residuals, gradient)
    to_bias = None
    if sums:
        to_queries, to_values = jnp.moveaxis(sums[0].sum(axis=(0, 1)), 1, 0)
        # The keys' bias adds the same to all scores of a query: it changes nothing.
        zeros = jnp.zeros_like(to_queries)
        to_bias = jnp.stack([to_queries, zeros, to_values], axis=1)
    return to_bias, to_packed, None, None, None


_attend.defvjp(_forward, _backward)


def _forward_call(
    setting: _Setting,
    packed: Array,
    key_ids: Array,
    query_ids: Array | None,
    words: tuple[Array, Array] | None,
) -> tuple[Array, ...]:
    """Computes for one device's rows and heads the output, and the logarithm of each
    query's sum [batch, heads, length]."""
    batch, length, heads, _, size = packed.shape
    specs = _Specs(packed.shape, setting.tiling.block)
    return _call(
        setting,
        _forward_kernel,
        specs,
        specs.inputs(query_ids, words),
        [specs.own, specs.row_own],
        [
            jax.ShapeDtypeStruct((batch, length, heads, size), packed.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
    )(packed, key_ids, query_ids, words)


def _backward_call(setting: _Setting, *residuals: Any) -> tuple[Array, ...]:
    """Computes for one device's rows and heads the gradient of packed and, with biases,
    partial sums for queries and values [batch, blocks, heads, 2, head_dim]."""
    packed, _, query_ids, words, *_ = residuals
    batch, length, heads, _, size = packed.shape
    block, whole, _ = setting.tiling
    own = length if whole else block
    specs, outs = _Specs(packed.shape, own), 1 + setting.biased
    sums = pl.BlockSpec(
        (None, own // block, None, 2, size), lambda h, i, row: (row, i, h, 0, 0)
    )
    of_sums = (batch, length // block, heads, 2, size)
    shapes = [
        jax.ShapeDtypeStruct(packed.shape, packed.dtype),
        jax.ShapeDtypeStruct(of_sums, jnp.float32),
    ]
    return _call(
        setting,
        _whole_backward_kernel if whole else _backward_kernel,
        specs,
        [
            *specs.inputs(query_ids, words),
            *(specs.vectors, specs.row, specs.vectors),
        ],
        [specs.packed_own, sums][:outs],
        shapes[:outs],
    )(*residuals)


class _Specs:
    """The blocks of each array that a program of the grid (head, block, row) reads."""

    def __init__(self, shape: tuple[int, ...], own: int):
        batch, length, heads, _, size = shape
        self.grid = (heads, length // own, batch)

        def packed(count: int, part: Any) -> pl.BlockSpec:
            sizes = (None, count, None, 3, size)
            return pl.BlockSpec(sizes, lambda h, i, row: (row, part(i), h, 0, 0))

        def vectors(count: int, part: Any) -> pl.BlockSpec:
            sizes = (None, count, None, size)
            return pl.BlockSpec(sizes, lambda h, i, row: (row, part(i), h, 0))

        def numbers(count: int, part: Any) -> pl.BlockSpec:
            return pl.BlockSpec(
                (None, None, count), lambda h, i, row: (row, h, part(i))
            )

        def block(i: Array) -> Array:
            return i

        def first(i: Array) -> int:
            return 0

        self.packed, self.packed_own = packed(length, first), packed(own, block)
        self.vectors, self.own = vectors(length, first), vectors(own, block)
        self.row, self.row_own = numbers(length, first), numbers(own, block)
        self.ids = pl.BlockSpec((None, length), lambda h, i, row: (row, 0))

    def inputs(self, query_ids: Any, words: Any) -> list:
        """Returns the specs of arrays that both passes read. None means no array."""
        ids = None if query_ids is None else self.ids
        return [self.packed, self.ids, ids, None if words is None else (self.row,) * 2]


def _call(
    setting: _Setting, kernel: Any, specs: _Specs, ins: list, outs: list, shapes: list
) -> Any:
    """Wraps one of the kernels below in `pl.pallas_call`."""
    forward = kernel is _forward_kernel
    return pl.pallas_call(
        functools.partial(kernel, setting),
        grid=specs.grid,
        in_specs=ins,
        out_specs=outs,
        out_shape=shapes,
        compiler_params=triton.CompilerParams(
            num_warps=4, num_stages=2 if forward else setting.tiling.stages
        ),
        interpret=setting.interpret,
        name="attention_forward" if forward else "attention_backward",
    )


class _Queries(NamedTuple):
    """A block of queries, and the data that belongs to each query."""

    vectors: Array  # [block, head_dim]
    positions: Array  # in the row
    ids: Array | None  # as in `AttentionMask`. None means that scores have terms added
    words: tuple[Array, Array] | None  # random words of a query, for dropout
    gradient: Any = None  # gradient of the output
    log_sum: Any = None  # log2 of the sum of the powers of 2 of the scores
    expected: Any = None  # expected gradient of the probabilities, times 1 - rate


class _Keys(NamedTuple):
    """A block of keys, and the data that belongs to each key."""

    vectors: Array  # [block, head_dim]
    values: Array  # [block, head_dim]
    positions: Array  # in the row
    ids: Array  # or the terms added to the scores


def _queries(setting: _Setting, start: Any, packed, ids, words, *outputs) -> _Queries:
    """Loads a block. `outputs` are the refs of output, log_sum and gradient."""
    rows = pl.ds(start, setting.tiling.block)
    loaded = _Queries(
        packed[rows, 0, :],
        start + jnp.arange(setting.tiling.block),
        None if ids is None else ids[rows],
        None if words is None else (words[0][rows], words[1][rows]),
    )
    if not outputs:
        return loaded
    output, log_sum, gradient = outputs
    outer = gradient[rows, :]
    products = outer.astype(jnp.float32) * output[rows, :].astype(jnp.float32)
    return loaded._replace(
        gradient=outer,
        log_sum=log_sum[rows],
        expected=jnp.sum(products, axis=1) * (1.0 - setting.rate),
    )


def _keys(setting: _Setting, start: Any, packed, ids) -> _Keys:
    rows = pl.ds(start, setting.tiling.block)
    positions = start + jnp.arange(setting.tiling.block)
    return _Keys(packed[rows, 1, :], packed[rows, 2, :], positions, ids[rows])


class _Pair:
    """A block of queries and one of keys: arrays of both, or of keys and queries."""

    def __init__(
        self, setting: _Setting, queries: _Queries, keys: _Keys, keys_first: bool
    ):
        self.setting, self.queries, self.keys = setting, queries, keys
        self.keys_first = keys_first

    def broadcast_query(self, x: Array) -> Array:
        return x[None, :] if self.keys_first else x[:, None]

    def broadcast_key(self, x: Array) -> Array:
        return x[:, None] if self.keys_first else x[None, :]

    def products(self, of_queries: Array, of_keys: Array) -> Array:
        if self.keys_first:
            return triton.dot(of_keys, of_queries.T)
        return triton.dot(of_queries, of_keys.T)

    def scores(self) -> Array:
        """Returns the scores in float32, to base 2."""
        setting, queries, keys = self.setting, self.queries, self.keys
        scores = self.products(queries.vectors, keys.vectors)
        scores *= setting.scale * _LOG2_E
        hidden = MASK_VALUE * _LOG2_E
        if queries.ids is None:
            added = self.broadcast_key(keys.ids)
        else:
            same = self.broadcast_query(queries.ids) == self.broadcast_key(keys.ids)
            added = jnp.where(same, 0.0, hidden)
        after = self.broadcast_query(queries.positions) - self.broadcast_key(
            keys.positions
        )
        if setting.causal:
            added = jnp.where(after >= 0, added, hidden)
        if setting.window:
            added = jnp.where(jnp.abs(after) <= setting.window, added, hidden)
        return scores + added

    def dropout_mask(self) -> Array:
        """Returns whether dropout keeps each probability."""
        assert self.queries.words is not None
        first, second = map(self.broadcast_query, self.queries.words)
        columns = self.broadcast_key(self.keys.positions.astype(jnp.uint32))
        bits = hash_column(first, second, columns)
        return bits >= jnp.uint32(round(self.setting.rate * 2**32))

    def gradients(self) -> tuple[Array, Array]:
        """Returns the probabilities after dropout, and the gradients of the scores. The
        caller divides both by 1 - rate, and multiplies the second by the scale."""
        queries, dtype = self.queries, self.keys.values.dtype
        probs = jnp.exp2(self.scores() - self.broadcast_query(queries.log_sum))
        to_probs = self.products(queries.gradient, self.keys.values)
        dropped = probs
        if queries.words is not None:
            # Held in one register: a probability is negative where it is dropped.
            probs = jnp.where(self.dropout_mask(), probs, -probs)
            dropped, to_probs = (
                jnp.where(probs > 0.0, x, 0.0) for x in (probs, to_probs)
            )
            probs = jnp.abs(probs)
        to_scores = probs * (to_probs - self.broadcast_query(queries.expected))
        return dropped.astype(dtype), to_scores.astype(dtype)


def _attending_blocks(
    setting: _Setting, index: Array, length: int, queries: bool
) -> tuple[Any, Any]:
    """Returns the first block of keys to which a block of queries attends, and the one
    after the last. With `queries`, returns the blocks of queries that attend to a block
    of keys."""
    first: Any = 0
    end: Any = length // setting.tiling.block
    if setting.window:
        reach = -(-setting.window // setting.tiling.block)
        first = jnp.maximum(index - reach, 0)
        end = jnp.minimum(index + reach + 1, end)
    if setting.causal and queries:  # those after it
        first = index
    elif setting.causal:
        end = index + 1
    return first, end


def _forward_kernel(
    setting: _Setting, packed, key_ids, query_ids, words, output, log_sum
) -> None:
    block, own = setting.tiling.block, pl.program_id(1)
    queries = _queries(setting, own * block, packed, query_ids, words)

    def add(index: Array, carry: tuple) -> tuple:
        total, largest, mass = carry
        keys = _keys(setting, index * block, packed, key_ids)
        pair = _Pair(setting, queries, keys, keys_first=False)
        scores = pair.scores()
        new = jnp.maximum(largest, jnp.max(scores, axis=1))
        probs = jnp.exp2(scores - new[:, None])
        shrunk = jnp.exp2(largest - new)
        mass = mass * shrunk + jnp.sum(probs, axis=1)
        if words is not None:
            probs = jnp.where(pair.dropout_mask(), probs, 0.0)
        mixed = triton.dot(probs.astype(packed.dtype), keys.values)
        return total * shrunk[:, None] + mixed, new, mass

    first = (
        jnp.zeros(output.shape, jnp.float32),
        jnp.full((block,), -math.inf, jnp.float32),
        jnp.zeros((block,), jnp.float32),
    )
    ends = _attending_blocks(setting, own, packed.shape[0], queries=False)
    total, largest, mass = jax.lax.fori_loop(*ends, add, first)
    inverse = 1.0 / (mass * (1.0 - setting.rate))
    output[...] = (total * inverse[:, None]).astype(output.dtype)
    log_sum[...] = largest + jnp.log2(mass)


def _backward_kernel(
    setting: _Setting, packed, key_ids, query_ids, words, *outputs
) -> None:
    """Computes, in a program, the gradients of one block of keys and values, over all
    queries, and of the same block of queries, over all keys."""
    given, results = outputs[:3], outputs[3:]
    block, length = setting.tiling.block, packed.shape[0]
    own = pl.program_id(1)

    def load_keys(index: Array) -> _Keys:
        return _keys(setting, index * block, packed, key_ids)

    def load_queries(index: Array) -> _Queries:
        return _queries(setting, index * block, packed, query_ids, words, *given)

    def add_queries(index: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        queries = load_queries(index)
        dropped, to_scores = _Pair(setting, queries, keys, True).gradients()
        return (
            sums[0] + triton.dot(to_scores, queries.vectors),
            sums[1] + triton.dot(dropped, queries.gradient),
        )

    def add_keys(index: Array, total: Array) -> Array:
        keys = load_keys(index)
        _, to_scores = _Pair(setting, queries, keys, False).gradients()
        return total + triton.dot(to_scores, keys.vectors)

    zeros = jnp.zeros((block, packed.shape[2]), jnp.float32)
    keys = load_keys(own)
    ends = _attending_blocks(setting, own, length, queries=True)
    to_keys, to_values = jax.lax.fori_loop(*ends, add_queries, (zeros, zeros))
    _store(setting, results, 0, to_keys=to_keys, to_values=to_values)
    queries = load_queries(own)
    ends = _attending_blocks(setting, own, length, queries=False)
    to_queries = jax.lax.fori_loop(*ends, add_keys, zeros)
    _store(setting, results, 0, to_queries=to_queries)


def _whole_backward_kernel(
    setting: _Setting, packed, key_ids, query_ids, words, *outputs
) -> None:
    """Computes, in a program, all gradients of a row of one head, whose keys are one
    block or two."""
    given, results = outputs[:3], outputs[3:]
    block = setting.tiling.block
    starts = range(0, packed.shape[0], block)
    zeros = jnp.zeros((block, packed.shape[2]), jnp.float32)
    load_keys = functools.partial(_keys, setting, packed=packed, ids=key_ids)
    to_scores: dict[tuple[int, int], Array] = {}
    for first in starts:
        keys, to_keys, to_values = load_keys(first), zeros, zeros
        for start in starts:
            queries = _queries(setting, start, packed, query_ids, words, *given)
            dropped, found = _Pair(setting, queries, keys, True).gradients()
            to_keys += triton.dot(found, queries.vectors)
            to_values += triton.dot(dropped, queries.gradient)
            to_scores[first, start] = found
            if first == starts[-1]:  # transposed: Triton computes no scores twice
                products = (
                    triton.dot(load_keys(each).vectors.T, to_scores[each, start])
                    for each in reversed(starts)
                )
                to_queries = functools.reduce(jnp.add, products)
                _store(setting, results, start // block, to_queries=to_queries.T)
        of_keys = {"to_keys": to_keys, "to_values": to_values}
        _store(setting, results, first // block, **of_keys)


def _store(setting: _Setting, results: tuple, number: int, **gradients: Array) -> None:
    """Writes gradients of one of a program's blocks and, with biases, their sums."""
    to_packed, *sums = results
    rows = pl.ds(number * setting.tiling.block, setting.tiling.block)
    factor = 1.0 / (1.0 - setting.rate)
    parts = {"to_queries": 0, "to_keys": 1, "to_values": 2}
    for name, gradient in gradients.items():
        scaled = gradient * (factor if name == "to_values" else factor * setting.scale)
        to_packed[rows, parts[name], :] = scaled.astype(to_packed.dtype)
        if sums and name != "to_keys":
            sums[0][number, parts[name] // 2, :] = jnp.sum(scaled, axis=0)
