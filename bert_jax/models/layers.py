"""The building blocks of the model."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.extend.random import threefry2x32_p
from jaxtyping import Array, Float, Int, Key, UInt32

from bert_jax.models.config import BertConfig
from bert_jax.models.kernels import lookup
from bert_jax.models.matmul import linear
from bert_jax.types import DropoutKey

# The name by which `remat` refers to the results of linear layers.
PRODUCT = "product"


@jax.checkpoint
def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes x times the normal distribution function of x, by erf, in float32.

    The backward pass computes it again, because keeping erf(x) would take another
    array.
    """
    wide = x.astype(jnp.float32)
    return (0.5 * wide * (1.0 + jax.lax.erf(wide / math.sqrt(2.0)))).astype(x.dtype)


ACTIVATION_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}


def kernel_initializer(
    config: BertConfig, names: tuple[str, ...]
) -> nn.initializers.Initializer:
    """Returns the config's initializer. BERT's is cut at two standard deviations.
    `names` are the array's axes. With `position_initializer=sinusoidal` the positions'
    initial values are `sinusoidal_positions`, scaled.
    """
    spread = config.initializer_range
    if names[0] == "position" and config.position_initializer == "sinusoidal":
        return nn.with_logical_partitioning(
            lambda key, shape: jnp.asarray(spread * sinusoidal_positions(*shape)), names
        )
    if config.initializer is None:
        draw = shared_initializer(nn.initializers.truncated_normal, spread)
    else:
        draw = config.initializer(config, names)
    return nn.with_logical_partitioning(draw, names)


@functools.cache
def shared_initializer(
    make: Callable[[float], nn.initializers.Initializer], stddev: float
) -> nn.initializers.Initializer:
    """Returns `make(stddev)`, which must draw all numbers alike. Arrays of one size
    share a program."""
    draw = jax.jit(make(stddev), static_argnums=(1, 2))

    def draw_flat(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
        return draw(key, (math.prod(shape),), dtype).reshape(shape)

    return draw_flat


def sinusoidal_positions(rows: int, width: int) -> Float[np.ndarray, "rows width"]:
    """Returns a wave of the position in each column, from fast to slow. Their mean
    square is 1.

    As in Vaswani et al. 2017, section 3.5, with 100 for their 10,000, whose slower half
    barely changes within 512 positions. Vectors of positions equally far apart are so
    alike that a head learns to look at a neighbor at all positions at once.
    """
    pair = np.arange(width) // 2
    angles = np.arange(rows)[:, None] * 100.0 ** (-2 * pair / width)
    waves = np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))
    return (waves * math.sqrt(2)).astype(np.float32)


class Dense(nn.Module):
    """A linear layer, which multiplies in `config.dtype`.

    Attributes:
      config: The model's sizes.
      features: Sizes of the output axes.
      names: Logical axes of its kernel, inputs first.
      inputs: Number of input axes, the last ones.
      logits: Whether the sum and the result are float32, because bfloat16 has steps of
        1/64 between 2 and 4.
      adds_bias: Whether it adds the bias. If not, it returns the product and the bias,
        for a kernel that adds them.
    """

    config: BertConfig
    features: tuple[int, ...]
    names: tuple[str, ...]
    inputs: int = 1
    logits: bool = False
    adds_bias: bool = True

    def __call__(self, x: Float[Array, "..."]) -> Any:
        kernel, bias = self.parameters(x.shape[-self.inputs :])
        x = x.astype(jnp.float32 if self.logits else self.config.dtype)
        added = bias if self.adds_bias else jnp.zeros_like(bias)
        outputs = checkpoint_name(linear(self.names, x, kernel, added), PRODUCT)
        return outputs if self.adds_bias else (outputs, bias)

    @nn.compact
    def parameters(self, inputs: tuple[int, ...]) -> tuple[Array, Array]:
        """Returns the kernel [*inputs, *features] and the bias [*features], for a
        product that is computed elsewhere."""
        kernel = self.param(
            "kernel",
            kernel_initializer(self.config, self.names),
            (*inputs, *self.features),
        )
        if self.logits or self.config.bias:
            zeros, names = nn.initializers.zeros_init(), self.names[self.inputs :]
            boxed = nn.with_logical_partitioning(zeros, names)
            bias = jnp.asarray(self.param("bias", boxed, self.features))
        else:
            bias = jnp.zeros(self.features)  # a constant that XLA leaves out
        return jnp.asarray(kernel), bias


def kernel_inputs(module: Sequence[str]) -> int:
    """Returns the number of a kernel's input axes, which come first in one layer's.

    Args:
      module: Path of its module, such as (..., "attention", "output").
    """
    return 2 if tuple(module[-2:]) == ("attention", "output") else 1


class Embedding(nn.Module):
    """A table of vectors, and the lookup in it.

    Attributes:
      config: The model's sizes.
      rows: Number of vectors.
      axis: Logical name of the rows.
    """

    config: BertConfig
    rows: int
    axis: str

    def setup(self) -> None:
        init = kernel_initializer(self.config, (self.axis, "embed"))
        shape = (self.rows, self.config.embedding_size)
        self.embedding = self.param("embedding", init, shape)

    @property
    def table(self) -> Float[Array, "rows hidden"]:
        # Whole vectors on each device: if split, every token's would be gathered.
        return nn.with_logical_constraint(self.embedding, (self.axis, "hidden"))

    def __call__(self, ids: Int[Array, "..."]) -> Float[Array, "... hidden"]:
        if platform_name() == "gpu":
            return lookup.lookup_rows(self.table, ids)
        return jnp.take(self.table, ids, axis=0)

    def select(
        self, ids: Int[Array, "batch length"]
    ) -> Float[Array, "batch length hidden"]:
        """Looks up ids in a table of a few rows. Its gradient is a sum for each row,
        while a gather's would add every token's vector to the same few rows."""
        table = self.table
        # [batch, length, hidden]
        vectors = jnp.broadcast_to(table[0], (*ids.shape, table.shape[1]))
        for index in range(1, len(table)):
            vectors = jnp.where((ids == index)[:, :, None], table[index], vectors)
        return vectors


def platform_name() -> str:
    """Returns gpu, tpu or cpu, for the mesh in use, which need not exist here."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform


def layer_norm(config: BertConfig, *, name: str | None = None) -> nn.LayerNorm:
    """Returns a LayerNorm with float32 statistics and a result in `config.dtype`."""
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        dtype=config.dtype,
        param_dtype=jnp.float32,
        # E[x^2] - E[x]^2 is too inexact for an epsilon of 1e-12.
        use_fast_variance=False,
        use_bias=config.bias,
        scale_init=nn.with_logical_partitioning(nn.initializers.ones_init(), ("norm",)),
        bias_init=nn.with_logical_partitioning(nn.initializers.zeros_init(), ("norm",)),
        name=name,
    )


def constrain_rows(hidden: Array) -> Array:
    """Keeps rows split over the data axes, and each row whole."""
    return nn.with_logical_constraint(hidden, ("batch", "length", "hidden"))


def gather_positions(
    x: Float[Array, "batch length ..."], positions: Int[Array, "batch positions"]
) -> Float[Array, "batch positions ..."]:
    """Gathers vectors at some positions of each row. XLA chooses the layout of those
    with heads."""
    positions = positions.reshape(*positions.shape, *(1,) * (x.ndim - 2))
    if platform_name() == "gpu":
        found = lookup.gather_by_blocks(x.shape[1], x, positions)
    else:
        found = jnp.take_along_axis(x, positions, axis=1)
    return constrain_rows(found) if x.ndim == 3 else found


def pool_tokens(
    hidden: Float[Array, "batch length hidden"],
    mask: Int[Array, "batch length"],
    pooling: str,
) -> Float[Array, "batch size"]:
    """Computes each text's vector in float32. It is 0 for a text without tokens.

    Args:
      pooling: One of mean_all and max (over all tokens), mean (over all but the first
        and the last, [CLS] and [SEP]), and cls. Several, joined by +, are concatenated.
    """
    if "+" in pooling:
        each = [pool_tokens(hidden, mask, one) for one in pooling.split("+")]
        return jnp.concatenate(each, axis=-1)
    hidden, counts = hidden.astype(jnp.float32), mask.sum(axis=1, keepdims=True)
    positions = jnp.arange(mask.shape[1])
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "max":
        return jnp.where(mask[..., None] > 0, hidden, -jnp.inf).max(axis=1)
    weights = mask
    if pooling == "mean":
        weights = mask * ((positions > 0) & (positions < counts - 1))
    total = jnp.maximum(weights.sum(axis=1, keepdims=True), 1).astype(jnp.float32)
    # A TPU would otherwise round the products' factors to bfloat16.
    highest = jax.lax.Precision.HIGHEST
    factors = weights.astype(jnp.float32)
    return jnp.einsum("bl,blh->bh", factors, hidden, precision=highest) / total


def masked_means(
    states: Float[Array, "batch length *shape"], owners: Any, count: int
) -> Float[Array, "batch count *shape"]:
    """Returns the mean of each vector's positions, or 0 if it has none.

    Args:
      owners: Index of each position's vector [batch, length], or -1.
    """
    owned = owners[:, None] == jnp.arange(count)[:, None]
    weights = owned / jnp.maximum(1, owned.sum(axis=2, keepdims=True))
    flat = states.reshape(*states.shape[:2], -1)
    # A TPU would otherwise round the products' factors to bfloat16.
    highest = jax.lax.Precision.HIGHEST
    vectors = jnp.einsum("bvl,bls->bvs", weights, flat, precision=highest)
    return vectors.reshape(*vectors.shape[:2], *states.shape[2:])


def dropout(
    x: Float[Array, "..."],
    rate: float,
    key: DropoutKey,
    positions: Int[Array, "..."] | None = None,
) -> Float[Array, "..."]:
    """Applies inverted dropout. Returns `x` itself without a key (evaluation).

    Whether an element is kept depends only on the key and the element's indices, so
    padding does not change it. The key is an argument, not a Flax random stream, so
    that a stacked and an unrolled encoder draw the same numbers.

    Args:
      positions: Positions of the second last axis's vectors in the array of which they
        are a part. None means that `x` is the whole array.
    """
    if key is None or rate == 0.0:
        return x
    kept = random_bits(key, x.shape, positions) >= jnp.uint32(round(rate * 2**32))
    return jnp.where(kept, x / (1.0 - rate), 0.0).astype(x.dtype)


def layer_keys(
    key: DropoutKey, index: int | Int[Array, ""], count: int
) -> tuple[DropoutKey, ...]:
    """Returns the dropout keys of layer `index`."""
    if key is None:
        return (None,) * count
    return tuple(jax.random.split(jax.random.fold_in(key, index), count))


def random_bits(
    key: Key[Array, ""],
    shape: tuple[int, ...],
    positions: Int[Array, "..."] | None = None,
) -> UInt32[Array, "..."]:
    """Returns uniform bits for each element of an array of one to four axes.

    Threefry gives each row of the last axis two words. A hash of them and the column
    gives the bits. The hash is two rounds of multiplication and xorshift (as in
    Wellons's lowbias32), a fifth of the work of threefry for each element.
    """
    first, second = row_keys(key, shape[:-1], positions)
    column = jnp.arange(shape[-1], dtype=jnp.uint32)
    return hash_column(first[..., None], second[..., None], column)


def row_keys(
    key: Key[Array, ""],
    shape: tuple[int, ...],
    positions: Int[Array, "..."] | None = None,
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Returns two words for each row: threefry of the key and the row's indices.

    Args:
      positions: The rows' last indices. None means 0, 1, 2, ...
    """
    *outer, rows = (1, 1, 1, *shape)[-3:]
    index = jax.lax.broadcasted_iota
    sizes = (*outer, rows)
    # Exact while the two inner axes have at most 65,536 indices.
    last = index(jnp.uint32, sizes, 2)
    if positions is not None:
        last = jnp.broadcast_to(positions.astype(jnp.uint32), sizes)
    inner = index(jnp.uint32, sizes, 1) << 16 | last
    first, second = jax.random.key_data(key)[:2]
    # Not `threefry_2x32`, which joins both counters in one array: where rows are split
    # over devices, they would send each other parts of it.
    words = threefry2x32_p.bind(first, second, index(jnp.uint32, sizes, 0), inner)
    return words[0].reshape(shape), words[1].reshape(shape)


def hash_column(
    first: UInt32[Array, "..."],
    second: UInt32[Array, "..."],
    column: UInt32[Array, "..."],
) -> UInt32[Array, "..."]:
    """Returns a row's bits at a column. `first` and `second` are the row's words."""
    bits = column * jnp.uint32(0x9E3779B9) + first
    bits = (bits ^ bits >> 16) * jnp.uint32(0x7FEB352D) ^ second
    return (bits ^ bits >> 15) * jnp.uint32(0x846CA68B)
