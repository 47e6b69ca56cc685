"""A softmax over a sample of a large vocabulary (Jean et al. 2015), as in TensorFlow's
`sampled_softmax_loss` with its log-uniform sampler of distinct classes."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key


class Sample(NamedTuple):
    """Distinct classes, drawn for a whole batch."""

    ids: Int[Array, "samples"]
    # About how many draws it took: how probable each class was follows from it.
    draws: Float[Array, ""]

    def log_expected(
        self, ids: Int[Array, "*shape"], classes: int
    ) -> Float[Array, "*shape"]:
        """Returns the logarithm of each class's probability of being in the sample."""
        return jnp.log(-jnp.expm1(-_probability(ids, classes) * self.draws))


def draw(key: Key[Array, ""], classes: int, samples: int) -> Sample:
    """Draws classes one after the other, without those drawn before.

    Class i of V has the probability log((i + 2) / (i + 1)) / log(V + 1): about Zipf's,
    for words in the order of their frequency. TensorFlow draws with repetitions until
    it has enough distinct classes, and counts the draws. Here each class waits for an
    exponential time of its rate, and the first ones are taken: the same distribution,
    with the waiting time instead of the count, and no loop.

    Args:
      samples: Number of classes to draw, fewer than `classes`.
    """
    rate = _probability(jnp.arange(classes), classes)
    arrival = jax.random.exponential(key, (classes,)) / rate
    # Whether a class is among the first depends on when the next one after them came.
    arrivals, ids = jax.lax.top_k(-arrival, samples + 1)
    return Sample(ids[:-1], -arrivals[-1])


def losses(
    hidden: Float[Array, "words size"],
    targets: Int[Array, "words"],
    kernel: Float[Array, "classes size"],
    bias: Float[Array, "classes"],
    sample: Sample,
) -> Float[Array, "words"]:
    """Returns each word's cross entropy among its target and the sample, in nats.

    A logit is corrected by how probable its class was. A target that is in the sample
    too counts once.
    """
    classes = len(bias)
    target_logits = jnp.sum(hidden * kernel[targets], axis=-1) + bias[targets]
    target_logits = target_logits - sample.log_expected(targets, classes)
    others = hidden @ kernel[sample.ids].T + bias[sample.ids]
    others = others - sample.log_expected(sample.ids, classes)
    others = jnp.where(targets[:, None] == sample.ids, -jnp.inf, others)
    everything = jnp.concatenate([target_logits[:, None], others], axis=-1)
    return jax.nn.logsumexp(everything, axis=-1) - target_logits


def _probability(ids: Int[Array, "*shape"], classes: int) -> Float[Array, "*shape"]:
    """Returns the probability of each draw, before any other."""
    return jnp.log1p(1.0 / (ids + 1.0)) / math.log(classes + 1)
