"""Losses, their gradients, and what a run adds to them.

A loss is a function of (parameters, batch, key). It returns named sums over the rows of
a batch. What a run adds to a loss or to its gradient is a transform of it, and so is an
experiment's (`train.transforms`, docs/extending.md):

    loss = merged(loss, lambda params: lora.merge(params, model))
    loss = beside(loss, constants)  # arrays that it reads and nobody trains
    gradient = accumulate(loss, weights, micro_batches)

Each micro-batch's sums are divided by the weights of the whole batch and then added, so
the result does not depend on how a batch is split over micro-batches and devices.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Bool, Int

from bert_jax.types import Arrays, Params, Scalars

# (parameters, batch, key) -> named sums
Loss = Callable[[Params, Arrays, Any], Scalars]
# (parameters, batch, key) -> arrays [batch, ...], whose rows a loss compares
Vectors = Callable[[Params, Arrays, Any], Arrays]
# Returns the divisor of each named sum of a batch.
Weights = Callable[[Arrays], Scalars]


class Gradients(NamedTuple):
    """What a step learns from a batch.

    Attributes:
      params: Gradients of the parameters that learn.
      losses: The losses, by name. Their sum has these gradients.
      metrics: Further numbers for the log, by name.
    """

    params: Params
    losses: Scalars
    metrics: Mapping[str, Array] = MappingProxyType({})


# (parameters, batch, key) -> gradients
Gradient = Callable[[Params, Arrays, Any], Gradients]


def _unchanged(function: Any, _: Any) -> Any:
    return function


class Transform(NamedTuple):
    """A change to what a run learns, an entry of TRANSFORMS.

    Attributes:
      loss: Function of (loss of the model's parameters, task) that returns a loss.
      divisors: The name of each sum that `loss` adds, and the one whose divisor it has.
      logged: Names of those that are logged, but not trained.
      gradient: Function of (gradient of the parameters that learn, task) that returns a
        gradient.
    """

    loss: Callable[[Loss, Any], Loss] = _unchanged
    divisors: Mapping[str, str] = MappingProxyType({})
    logged: Collection[str] = ()
    gradient: Callable[[Gradient, Any], Gradient] = _unchanged


def with_divisors(weights: Weights, names: Mapping[str, str]) -> Weights:
    """Returns weights with those of further sums.

    Args:
      names: The name of each, and the sum whose divisor it has.
    """

    def changed(batch: Arrays) -> Scalars:
        found = weights(batch)
        return found | {name: found[other] for name, other in names.items()}

    return changed


def beside(function: Callable[..., Any], others: Params) -> Callable[..., Any]:
    """Returns a loss, or a function of vectors, that finds `others` among its
    parameters."""
    return lambda params, *rest: function(join(params, others), *rest)


def merged(
    function: Callable[..., Any], merge: Callable[[Params], Params]
) -> Callable[..., Any]:
    """Returns a loss, or a function of vectors, of parameters from which `merge` makes
    the model's."""
    return lambda params, *rest: function(merge(params), *rest)


def only(
    make: Callable[[Any], Gradient],
    function: Callable[..., Any],
    learns: Callable[[str], bool] | None,
) -> Gradient:
    """Returns the gradient of the parameters that learn.

    Args:
      make: Transform that makes the gradient of `function`.
      function: A loss, or a function of vectors.
      learns: Whether a parameter learns, by its path. None means that all do.
    """

    def gradient(params: Params, *rest: Any) -> Gradients:
        learning, others = split_params(params, learns)
        return make(beside(function, others))(learning, *rest)

    return gradient


def accumulate(
    loss: Loss, weights: Weights, parts: int, logged: Collection[str] = ()
) -> Gradient:
    """Returns the gradient of a batch's sums, each divided by its weight.

    Args:
      loss: A loss.
      weights: Function that returns the divisor of each sum of a batch.
      parts: Number of micro-batches.
      logged: Names of sums that are metrics, which are not trained.
    """

    def gradient(params: Params, batch: Arrays, key: Any) -> Gradients:
        divisors = _at_least_some(weights(batch))

        def of_part(params: Params, index: Any, rows: Arrays) -> tuple:
            sums = loss(params, rows, jax.random.fold_in(key, index))
            losses = {name: total / divisors[name] for name, total in sums.items()}
            return sum(x for name, x in losses.items() if name not in logged), losses

        part = jax.grad(of_part, has_aux=True)
        if parts == 1:
            grads, losses = part(params, 0, batch)
        else:
            rows = split_rows(batch, parts)
            grads, losses = _summed(lambda *x: part(params, *x), rows)
        metrics = {name: losses.pop(name) for name in logged}
        return Gradients(grads, losses, metrics)

    return gradient


def cached(
    vectors: Vectors,
    loss: Callable[[Arrays, Arrays], Scalars],
    weights: Weights,
    parts: int,
) -> Gradient:
    """Returns the gradient of a loss that compares the rows of a whole batch.

    Computes the vectors part by part, then the loss of all of them, then each part
    again with its vectors' gradients (Gao et al. 2021, gradient caching).

    Args:
      vectors: Function of the parameters that returns what the loss compares.
      loss: Function of (vectors, batch) that returns named sums.
      weights: Function that returns the divisor of each sum of a batch.
      parts: Number of micro-batches.
    """

    def gradient(params: Params, batch: Arrays, key: Any) -> Gradients:
        divisors = _at_least_some(weights(batch))

        def of_part(params: Params, index: Any, rows: Arrays) -> Arrays:
            return vectors(params, rows, jax.random.fold_in(key, index))

        def total(found: Arrays) -> tuple:
            sums = loss(found, batch)
            losses = {name: value / divisors[name] for name, value in sums.items()}
            return sum(losses.values()), losses

        def back(index: Int[Array, ""], part: tuple[Arrays, Arrays]) -> Params:
            rows, cotangents = part
            return jax.vjp(lambda p: of_part(p, index, rows), params)[1](cotangents)[0]

        if parts == 1:
            whole = jax.grad(lambda p: total(of_part(p, 0, batch)), has_aux=True)
            grads, losses = whole(params)
            return Gradients(grads, losses)
        rows = split_rows(batch, parts)
        found = jax.lax.map(lambda x: of_part(params, *x), (jnp.arange(parts), rows))
        joined = jax.tree.map(
            lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), found
        )
        cotangents, losses = jax.grad(total, has_aux=True)(joined)
        grads = _summed(back, (rows, split_rows(cotangents, parts)))
        return Gradients(grads, losses)

    return gradient


def uneven_weights(
    weights: Weights, batch: Arrays, parts: int
) -> dict[str, Bool[Array, ""]]:
    """Returns, by loss, whether its weight differs from the sum of the parts' weights.

    Then the loss may not be a sum over rows either, such as a mean with the weight 1,
    which each part adds to the batch's loss.
    """
    of_parts = jax.lax.map(weights, split_rows(batch, parts))
    return {
        name: jnp.abs(jnp.sum(of_parts[name]) - weight) > 1e-3 * jnp.abs(weight)
        for name, weight in weights(batch).items()
    }


def split_params(
    params: Params, learns: Callable[[str], bool] | None
) -> tuple[Any, Any]:
    """Returns the parameters that learn, and the others.

    Args:
      learns: Whether a parameter learns, by its path. None means that all do.
    """
    if learns is None:
        return params, {}
    flat = flatten_dict(params, sep="/")
    learning = {name: x for name, x in flat.items() if learns(name)}
    others = {name: x for name, x in flat.items() if name not in learning}
    return unflatten_dict(learning, sep="/"), unflatten_dict(others, sep="/")


def select_params(params: Params, names: Params) -> Params:
    """Returns those parameters of which `names`, such as gradients, has one too."""
    every = flatten_dict(params, keep_empty_nodes=True)
    return unflatten_dict(
        {path: every[path] for path in flatten_dict(names, keep_empty_nodes=True)}
    )


def join(params: Params, others: Params) -> Params:
    """Returns one tree with the leaves of two. Those of `others` win."""
    flat = flatten_dict(params, keep_empty_nodes=True)
    return unflatten_dict(flat | flatten_dict(others, keep_empty_nodes=True))


def split_rows(batch: Arrays, parts: int) -> dict[str, Array]:
    """Reshapes [batch, ...] to [parts, batch / parts, ...], each part on every device.

    Part i takes rows i, i + parts, ...: each device cuts the rows it already has.
    """
    return {
        name: x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)
        for name, x in batch.items()
    }


def _summed(function: Callable[..., Any], parts: Any) -> Any:
    """Returns the sum of `function(index, part)` over parts [parts, rows, ...]."""

    def add(total: Any, part: tuple) -> tuple:
        return jax.tree.map(jnp.add, total, function(*part)), None

    first = jax.tree.map(lambda rows: rows[0], parts)
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, 0, first))
    numbers = jnp.arange(len(jax.tree.leaves(parts)[0]))
    return jax.lax.scan(add, zeros, (numbers, parts))[0]


def _at_least_some(weights: Scalars) -> Scalars:
    """Bounds the divisors, of which one is 0 where no row counts."""
    return {name: jnp.maximum(weight, 1e-6) for name, weight in weights.items()}
