"""The building blocks of the model."""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.models.config import BertConfig

ACTIVATION_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}


def truncated_normal(
    config: BertConfig, names: tuple[str, ...]
) -> nn.initializers.Initializer:
    """BERT's initializer, cut at two standard deviations; `names` are its axes."""
    return nn.with_logical_partitioning(
        nn.initializers.truncated_normal(config.initializer_range), names
    )


class Dense(nn.Module):
    """A linear layer from the last `inputs` axes to `features`.

    `names` are the logical axes of its kernel, inputs first. It multiplies in
    `config.dtype`; with `logits` the sum and the result are float32, because bfloat16
    has steps of 1/64 between 2 and 4.
    """

    config: BertConfig
    features: tuple[int, ...]
    names: tuple[str, ...]
    inputs: int = 1
    logits: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        dtype = self.config.dtype
        outer, inner = x.shape[: -self.inputs], x.shape[-self.inputs :]
        kernel = self.param(
            "kernel",
            truncated_normal(self.config, self.names),
            (*inner, *self.features),
        )
        bias = self.param(
            "bias",
            nn.with_logical_partitioning(
                nn.initializers.zeros_init(), self.names[self.inputs :]
            ),
            self.features,
        )
        # Whole vectors on each device, as in Embedding: fsdp's parts of the kernel are
        # gathered for the product, in its precision; the rows never are.
        whole = tuple("hidden" if name == "embed" else name for name in self.names)
        kernel = nn.with_logical_constraint(jnp.asarray(kernel, dtype), whole)
        # As matrices: on the CPU their gradients are twice as fast.
        rows = x.astype(dtype).reshape(-1, math.prod(inner))
        matrix = kernel.reshape(math.prod(inner), -1)
        result = "float32" if self.logits else dtype
        product = jnp.matmul(rows, matrix, preferred_element_type=result)
        return product.reshape(*outer, *self.features) + jnp.asarray(bias, result)


class Embedding(nn.Module):
    """A table of vectors, and the lookup in it."""

    config: BertConfig
    rows: int
    axis: str  # the logical name of the rows

    def setup(self) -> None:
        init = truncated_normal(self.config, (self.axis, "embed"))
        shape = (self.rows, self.config.hidden_size)
        self.embedding = self.param("embedding", init, shape)

    @property
    def table(self) -> Float[Array, "rows hidden"]:
        # Whole vectors on each device: looking up split vectors would need a gather for
        # every token.
        return nn.with_logical_constraint(self.embedding, (self.axis, "hidden"))

    def __call__(self, ids: Int[Array, "..."]) -> Float[Array, "... hidden"]:
        return jnp.take(self.table, ids, axis=0)


def layer_norm(config: BertConfig, *, name: str | None = None) -> nn.LayerNorm:
    """Mean and variance in float32; the result in `config.dtype`."""
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        dtype=config.dtype,
        param_dtype=jnp.float32,
        # E[x^2] - E[x]^2 is too inexact for an epsilon of 1e-12.
        use_fast_variance=False,
        scale_init=nn.with_logical_partitioning(nn.initializers.ones_init(), ("norm",)),
        bias_init=nn.with_logical_partitioning(nn.initializers.zeros_init(), ("norm",)),
        name=name,
    )


def dropout(
    x: Float[Array, "..."], rate: float, key: Key[Array, ""] | None
) -> Float[Array, "..."]:
    """Inverted dropout; returns `x` itself without a key (evaluation).

    Whether an element is kept depends only on the key and the element's indices, so
    padding does not change it. The key is an argument, not a Flax random stream, so
    that a stacked and an unrolled encoder draw the same numbers.
    """
    if key is None or rate == 0.0:
        return x
    keys = key
    # One key per row of the last axis; draws count from the start of the row.
    for axis, size in enumerate(x.shape[:-1]):
        each = jax.vmap(jax.random.fold_in, (None, 0))
        for _ in range(axis):
            each = jax.vmap(each, (0, None))
        keys = each(keys, jnp.arange(size))
    draw = functools.partial(jax.random.bernoulli, p=1.0 - rate, shape=x.shape[-1:])
    for _ in x.shape[:-1]:
        draw = jax.vmap(draw)
    return jnp.where(draw(keys), x / (1.0 - rate), 0.0).astype(x.dtype)
