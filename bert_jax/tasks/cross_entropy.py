"""Cross entropy: over a vocabulary, without a scatter in its gradient, or over classes.

With few classes it is Optax's, which is imported on use: inference has no loss.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@jax.custom_vjp
def cross_entropy(
    logits: Float[Array, "*batch vocab"], labels: Int[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Returns -log softmax(logits)[label], in nats and float32.

    The logits are the model's largest array. The gradient, of their dtype, reads them
    once and is written once, where a gather's would be scattered into zeros first.
    """
    return _forward(logits, labels)[0]


def _forward(logits: Array, labels: Array) -> tuple[Array, tuple]:
    log_sum = jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1)
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)
    return log_sum - picked[..., 0], (logits, labels, log_sum)


def _backward(kept: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, None]:
    logits, labels, log_sum = kept
    probs = jnp.exp(logits - log_sum[..., None])
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    found = (probs - is_label) * gradient[..., None]
    return found.astype(logits.dtype), None


cross_entropy.defvjp(_forward, _backward)


def class_cross_entropy(
    logits: Float[Array, "*batch classes"],
    labels: Int[Array, "*batch"],
    smoothing: float = 0.0,
) -> Float[Array, "*batch"]:
    """Returns -log softmax(logits)[label], in nats.

    Args:
      smoothing: Share of the target that is spread evenly over all classes, as in
        torch's `CrossEntropyLoss(label_smoothing=...)`.
    """
    import optax

    if not smoothing:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    targets = jax.nn.one_hot(labels, logits.shape[-1])
    return optax.softmax_cross_entropy(logits, optax.smooth_labels(targets, smoothing))
