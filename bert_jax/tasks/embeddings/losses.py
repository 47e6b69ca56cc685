"""Losses of text vectors: in-batch negatives, CoSENT, squared error, triplets.

`vectors` are [batch, texts, size]: a row's texts are a query, its positive and perhaps
a negative. `weights` [batch] are 1, or 0 for a row that only fills the batch and is not
a negative of any row. Each function returns the mean over the rows with weight 1.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Vectors = Float[Array, "batch texts size"]
Rows = Float[Array, "batch"]

_HIGHEST = jax.lax.Precision.HIGHEST  # else a TPU rounds to bfloat16


def info_nce(
    vectors: Vectors,
    weights: Rows,
    temperature: float,
    ids: Int[Array, "batch texts length"],
) -> Float[Array, ""]:
    """Returns the cross entropy of finding each row's partner in the whole batch.

    It is the mean of both directions: from the query among all positives and negatives,
    and from the positive among all queries. The cosines are divided by the temperature
    (van den Oord et al. 2018, and Gao et al. 2021, SimCSE).

    A text is no negative of an equal text, nor of the other text of a row that has an
    equal one.

    Args:
      ids: Token ids of each text, equal for equal texts.
    """
    vectors, real = normalize_vectors(vectors), weights > 0
    queries, *others = jnp.moveaxis(vectors, 1, 0)
    query, positive, *negatives = jnp.moveaxis(ids, 1, 0)
    partners = _equal_texts(query, query) | _equal_texts(positive, positive)
    partners |= _equal_texts(query, positive)
    counted = [~partners | jnp.eye(len(real), dtype=bool)]
    counted += [
        ~(_equal_texts(query, x) | _equal_texts(positive, x)) for x in negatives
    ]
    every = jnp.concatenate([each & real for each in counted], axis=1)
    there = _cross_entropy(queries, jnp.concatenate(others), every, temperature)
    back = _cross_entropy(others[0], queries, counted[0].T & real, temperature)
    return _mean((there + back) / 2, weights)


def cosent_loss(
    vectors: Vectors, weights: Rows, scores: Rows, temperature: float
) -> Float[Array, ""]:
    """Returns log(1 + the sum of exp of each wrongly ordered difference of cosines).

    A difference counts where the first row's score is the smaller one (Su 2022,
    CoSENT). It has one value for a batch, not one for each row.
    """
    cosine, real = row_cosines(vectors), weights > 0
    differences = (cosine[:, None] - cosine[None, :]) / temperature
    smaller = (scores[:, None] < scores[None, :]) & real[:, None] & real[None, :]
    counted = jnp.where(smaller, differences, -jnp.inf).ravel()
    return jax.nn.logsumexp(jnp.append(counted, 0.0))


def squared_error(vectors: Vectors, weights: Rows, scores: Rows) -> Float[Array, ""]:
    """Returns the squared difference of each row's cosine and its score (Reimers &
    Gurevych 2019, the regression objective)."""
    return _mean(jnp.square(row_cosines(vectors) - scores), weights)


def triplet_loss(vectors: Vectors, weights: Rows, margin: float) -> Float[Array, ""]:
    """Returns how far the positive's cosine is from exceeding the negative's by the
    margin."""
    queries, positives, negatives = jnp.moveaxis(normalize_vectors(vectors), 1, 0)
    gaps = jnp.sum(queries * (negatives - positives), axis=-1)
    return _mean(jax.nn.relu(gaps + margin), weights)


def row_cosines(vectors: Vectors) -> Rows:
    """Returns the cosine of the first two vectors of each row."""
    vectors = normalize_vectors(vectors)
    return jnp.sum(vectors[:, 0] * vectors[:, 1], axis=-1)


def normalize_vectors(vectors: Vectors) -> Vectors:
    """Scales each vector to length 1."""
    squares = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, 1e-24))


def _equal_texts(
    texts: Int[Array, "batch length"], others: Int[Array, "batch length"]
) -> Bool[Array, "batch batch"]:
    """Returns which texts have the same tokens."""
    return jnp.all(texts[:, None] == others[None], axis=-1)


def _cross_entropy(
    queries: Float[Array, "batch size"],
    candidates: Float[Array, "candidates size"],
    counted: Bool[Array, "batch candidates"],
    temperature: float,
) -> Rows:
    """Returns the loss of each query, whose candidate has the same index.

    Args:
      counted: Whether a candidate is the query's own or a negative of it.
    """
    logits = jnp.dot(queries, candidates.T, precision=_HIGHEST) / temperature
    own = jnp.diagonal(logits)
    return jax.nn.logsumexp(logits, axis=-1, where=counted) - own


def _mean(losses: Rows, weights: Rows) -> Float[Array, ""]:
    kept = jnp.where(weights > 0, losses, 0.0)
    return jnp.sum(kept) / jnp.maximum(jnp.sum(weights), 1.0)
