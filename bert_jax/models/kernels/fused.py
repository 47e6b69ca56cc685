"""Attention in one GPU kernel: no array of length x length leaves the chip.

The method is FlashAttention's (Dao et al. 2022; Dao 2023): the softmax over blocks of
keys, and its probabilities computed again in the backward pass. Dropout is that of
`layers.dropout`, from the same words, so the same elements are dropped.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from bert_jax.models.config import HIDDEN
from bert_jax.models.kernels.on_mesh import IDS, VECTORS, WORDS, on_mesh
from bert_jax.models.layers import hash_column, row_keys
from bert_jax.types import DropoutKey

BLOCKS = (64, 32, 16)  # queries or keys of a block; Triton multiplies 16 at least
_PARAMS = triton.CompilerParams(num_warps=4, num_stages=2)
_SPECS = (VECTORS, VECTORS, VECTORS, IDS, IDS, WORDS)


class _Setting(NamedTuple):
    """What a kernel is compiled for."""

    scale: float  # of the scores
    causal: bool  # a query attends to no position after its own
    window: int  # nor to one farther away; 0: to any
    rate: float  # of dropout; 0: none
    block: int
    interpret: bool  # run as JAX operations: for tests, on any device


def fused_attention(
    query: Float[Array, "batch length heads head_dim"],
    keys: Float[Array, "batch length heads head_dim"],
    value: Float[Array, "batch length heads head_dim"],
    seen: tuple[Int[Array, "batch #length"], Int[Array, "batch length"]],
    rate: float,
    key: DropoutKey,
    causal: bool = False,
    window: int = 0,
    *,
    interpret: bool = False,
) -> Float[Array, "batch length heads head_dim"]:
    """Softmax attention of each query over the keys with its id.

    Args:
      query: head_dim is one of `config.HEADS`.
      seen: the ids of queries and keys.
      rate: of dropout of the probabilities.
      key: for dropout; None for evaluation.
      causal: a query attends to no position after its own.
      window: it attends to at most so many on each side; 0: to all.
      interpret: run the kernel as JAX operations; by itself it runs on a GPU only.
    """
    batch, length, heads, size = query.shape
    query_ids, key_ids = jnp.broadcast_to(seen[0], (batch, length)), seen[1]
    words: tuple[Array, ...] | None = None
    if key is not None and rate > 0.0:
        words = row_keys(key, (batch, heads, length))
    padded = -length % BLOCKS[-1]
    if padded:
        wider = ((0, 0), (0, padded), (0, 0), (0, 0))
        query, keys, value = (jnp.pad(x, wider) for x in (query, keys, value))
        # Padding sees padding alone.
        query_ids, key_ids = (
            jnp.pad(x, wider[:2], constant_values=-1) for x in (query_ids, key_ids)
        )
        if words is not None:
            words = tuple(jnp.pad(word, ((0, 0), *wider[:2])) for word in words)
    block = next(size for size in BLOCKS if (length + padded) % size == 0)
    rate = rate if words else 0.0
    setting = _Setting(size**-0.5, causal, window, rate, block, interpret)
    attend = on_mesh(functools.partial(_attend, setting), _SPECS)
    mixed = attend(query, keys, value, query_ids, key_ids, words)
    return mixed[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(setting: _Setting, *inputs: Any) -> Array:
    """The arguments are those of `_forward`."""
    return _forward(setting, *inputs)[0]


def _forward(
    setting: _Setting,
    query: Array,
    keys: Array,
    value: Array,
    query_ids: Array,
    key_ids: Array,
    words: tuple[Array, Array] | None,
) -> tuple[Array, tuple]:
    batch, length, heads, _ = query.shape
    specs = _Specs(query.shape, setting.block)
    output, log_sum = pl.pallas_call(
        functools.partial(_forward_kernel, setting),
        grid=specs.grid,
        in_specs=[
            *(specs.block, specs.whole, specs.whole, specs.ids_block, specs.ids),
            (specs.row_block,) * 2 if words else None,
        ],
        out_specs=[specs.block, specs.row_block],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
        compiler_params=_PARAMS,
        interpret=setting.interpret,
        name="attention_forward",
    )(query, keys, value, query_ids, key_ids, words)
    kept = (query, keys, value, query_ids, key_ids, words, output, log_sum)
    return output, kept


def _backward(setting: _Setting, kept: tuple, gradient: Array) -> tuple:
    query, keys, value, query_ids, key_ids, words, output, log_sum = kept
    # The sum over keys of each probability times its gradient.
    products = gradient.astype(jnp.float32) * output.astype(jnp.float32)
    expected = jnp.sum(products, axis=-1).swapaxes(1, 2)
    specs = _Specs(query.shape, setting.block)
    gradients = pl.pallas_call(
        functools.partial(_backward_kernel, setting),
        grid=specs.grid,
        in_specs=[
            *(specs.whole,) * 3,
            *(specs.ids,) * 2,
            (specs.row,) * 2 if words else None,
            *(specs.row, specs.row, specs.whole),
        ],
        out_specs=[specs.block] * 3,
        out_shape=[
            jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, keys, value)
        ],
        compiler_params=_PARAMS,
        interpret=setting.interpret,
        name="attention_backward",
    )(query, keys, value, query_ids, key_ids, words, log_sum, expected, gradient)
    return (*gradients, None, None, None)


_attend.defvjp(_forward, _backward)


class _Specs:
    """What a program of the grid (block, row, head) reads of each array."""

    def __init__(self, shape: tuple[int, ...], block: int):
        batch, length, heads, size = shape
        self.grid = (length // block, batch, heads)
        self.block = pl.BlockSpec(
            (None, block, None, size), lambda i, row, head: (row, i, head, 0)
        )
        self.whole = pl.BlockSpec(
            (None, length, None, size), lambda i, row, head: (row, 0, head, 0)
        )
        self.ids_block = pl.BlockSpec((None, block), lambda i, row, head: (row, i))
        self.ids = pl.BlockSpec((None, length), lambda i, row, head: (row, 0))
        self.row_block = pl.BlockSpec(
            (None, None, block), lambda i, row, head: (row, head, i)
        )
        self.row = pl.BlockSpec(
            (None, None, length), lambda i, row, head: (row, head, 0)
        )


class _Block(NamedTuple):
    """A block of queries or keys: vectors, ids, and the number of the block."""

    vectors: Array
    ids: Array
    number: Array


def _scores(setting: _Setting, queries: _Block, keys: _Block) -> Array:
    """[queries, keys] in float32."""
    sums = triton.dot(queries.vectors, keys.vectors.T) * setting.scale
    seen = queries.ids[:, None] == keys.ids[None, :]
    place = jnp.arange(setting.block)
    first = (queries.number - keys.number) * setting.block
    after = first + place[:, None] - place[None, :]
    if setting.causal:
        seen = seen & (after >= 0)
    if setting.window:
        seen = seen & (jnp.abs(after) <= setting.window)
    return sums + jnp.where(seen, 0.0, HIDDEN)


def _near(setting: _Setting, number: Array, count: int) -> tuple[Any, Any]:
    """The first block of a block's windows, and the one after the last."""
    if not setting.window:
        return 0, count
    reach = -(-setting.window // setting.block)
    return jnp.maximum(number - reach, 0), jnp.minimum(number + reach + 1, count)


def _kept(setting: _Setting, words: tuple[Array, Array], start: Array) -> Array:
    """[queries, keys]: 1 / (1 - rate) where dropout keeps an element, else 0."""
    columns = (start + jnp.arange(setting.block)).astype(jnp.uint32)
    bits = hash_column(words[0][:, None], words[1][:, None], columns[None, :])
    kept = bits >= jnp.uint32(round(setting.rate * 2**32))
    return jnp.where(kept, 1.0 / (1.0 - setting.rate), 0.0)


def _forward_kernel(
    setting: _Setting, query, keys, value, query_ids, key_ids, words, output, log_sum
) -> None:
    block = setting.block
    queries = _Block(query[...], query_ids[...], pl.program_id(0))
    query_words = None if words is None else (words[0][...], words[1][...])

    def add(index: Array, carry: tuple) -> tuple:
        total, largest, mass = carry
        here = pl.ds(index * block, block)
        scores = _scores(setting, queries, _Block(keys[here, :], key_ids[here], index))
        new = jnp.maximum(largest, jnp.max(scores, axis=-1))
        probs = jnp.exp(scores - new[:, None])
        shrunk = jnp.exp(largest - new)
        mass = mass * shrunk + jnp.sum(probs, axis=-1)
        if query_words is not None:
            probs *= _kept(setting, query_words, index * block)
        mixed = triton.dot(probs.astype(value.dtype), value[here, :])
        return total * shrunk[:, None] + mixed, new, mass

    first = (
        jnp.zeros(query.shape, jnp.float32),
        jnp.full((block,), -math.inf, jnp.float32),
        jnp.zeros((block,), jnp.float32),
    )
    start, end = _near(setting, queries.number, keys.shape[0] // block)
    end = queries.number + 1 if setting.causal else end
    total, largest, mass = jax.lax.fori_loop(start, end, add, first)
    output[...] = (total / mass[:, None]).astype(output.dtype)
    log_sum[...] = largest + jnp.log(mass)


def _backward_kernel(
    setting: _Setting,
    query,
    keys,
    value,
    query_ids,
    key_ids,
    words,
    log_sum,
    expected,
    gradient,
    to_query,
    to_keys,
    to_value,
) -> None:
    """A program computes the gradients of one block of keys and values, over all
    queries, and of the same block of queries, over all keys."""
    block, dtype = setting.block, query.dtype

    def part(from_block: Array, to_block: Array) -> tuple[Array, Array]:
        """Of a block of queries and one of keys: the probabilities after dropout, and
        the gradients of the scores before they are scaled."""
        rows, columns = (pl.ds(i * block, block) for i in (from_block, to_block))
        scores = _scores(
            setting,
            _Block(query[rows, :], query_ids[rows], from_block),
            _Block(keys[columns, :], key_ids[columns], to_block),
        )
        probs = jnp.exp(scores - log_sum[rows][:, None])
        to_probs = triton.dot(gradient[rows, :], value[columns, :].T)
        dropped = probs
        if words is not None:
            row_words = (words[0][rows], words[1][rows])
            kept = _kept(setting, row_words, to_block * block)
            dropped, to_probs = probs * kept, to_probs * kept
        to_scores = probs * (to_probs - expected[rows][:, None]) * setting.scale
        return dropped.astype(dtype), to_scores.astype(dtype)

    def add_queries(index: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        rows = pl.ds(index * block, block)
        dropped, to_scores = part(index, number)
        return (
            sums[0] + triton.dot(to_scores.T, query[rows, :]),
            sums[1] + triton.dot(dropped.T, gradient[rows, :]),
        )

    def add_keys(index: Array, sums: Array) -> Array:
        _, to_scores = part(number, index)
        return sums + triton.dot(to_scores, keys[pl.ds(index * block, block), :])

    number, count = pl.program_id(0), query.shape[0] // block
    zeros = jnp.zeros(to_query.shape, jnp.float32)
    before, after = _near(setting, number, count)
    # Left to right, earlier queries see nothing of this block, nor it later keys.
    first, end = (number, number + 1) if setting.causal else (before, after)
    sums = jax.lax.fori_loop(first, after, add_queries, (zeros, zeros))
    to_keys[...], to_value[...] = (x.astype(dtype) for x in sums)
    to_query[...] = jax.lax.fori_loop(before, end, add_keys, zeros).astype(dtype)
