"""One training step: a pure function of (state, batch).

A loss is a dict of named sums over the rows of a batch. They are added over
micro-batches and devices and divided once by the whole batch's weights, so the result
does not depend on how a batch is split.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from bert_jax.training import anomaly
from bert_jax.training.state import TrainState
from bert_jax.types import Arrays, Params, Scalars

# (parameters, batch, key) -> named sums; of a state with a carry: (parameters, batch,
# key, carry) -> named sums and the next carry (`Task.carried_loss`).
LossFunction = Callable[..., Any]
WeightFunction = Callable[[Arrays], Scalars]
# (parameters, batch, key) -> arrays [batch, ...], of which `Task.batch_loss` compares
# the rows.
VectorFunction = Callable[..., Arrays]


def train_step(
    state: TrainState,
    batch: Arrays,
    seed: Int[Array, ""] | int,
    learning_rate: Float[Array, ""] | float,
    *,
    loss: LossFunction,
    loss_weights: WeightFunction,
    optimizer: optax.GradientTransformation,
    micro_batches: int,
    spike_factor: int | float = 0.0,
    vectors: VectorFunction | None = None,
) -> tuple[TrainState, dict[str, Array]]:
    """Takes one step; an anomaly changes only the counters.

    Args:
      state: do not use it afterwards (its buffers are donated).
      batch: arrays [batch, ...].
      seed: of the root key of dropout.
      learning_rate: passed to `optimizer.update`, and logged.
      loss: returns the named sums of a batch or a part of it; see `LossFunction`.
      loss_weights: returns what each named sum of a whole batch is divided by.
      optimizer: from `optimizer.make`.
      micro_batches: the number of parts that the batch is split into; 1 with a carry.
      spike_factor: see `anomaly.detect`.
      vectors: None means that `loss` takes (parameters, batch, key). Otherwise it takes
        (vectors, batch), those of the whole batch, whatever the number of parts.

    Returns:
      The next state, and the metrics: `loss`, each named loss, `grad_norm` (before
      clipping), `learning_rate`, and those of `anomaly.detect`.
    """
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    weights = {
        name: jnp.maximum(weight, 1e-6) for name, weight in loss_weights(batch).items()
    }
    if vectors is None:
        grads, (losses, carry) = _gradients(
            state.params, batch, key, loss, weights, micro_batches, state.carry
        )
    else:
        grads, losses = _gradients_of_vectors(
            state.params, batch, key, vectors, loss, weights, micro_batches
        )
        carry = state.carry
    metrics = {
        "loss": sum(losses.values()),
        **losses,
        "learning_rate": jnp.asarray(learning_rate, jnp.float32),
        "grad_norm": optax.tree.norm(grads),
    }
    bad, stats, judged = anomaly.detect(
        state.running_stats, metrics["loss"], metrics["grad_norm"], spike_factor
    )
    unless = anomaly.Unless(bad)
    updates, opt_state = optax.with_extra_args_support(optimizer).update(
        *(grads, state.opt_state, state.params),
        learning_rate=learning_rate,
        unless=unless,
    )
    params, opt_state, carry = unless(
        (optax.apply_updates(state.params, updates), opt_state, carry),
        (state.params, state.opt_state, state.carry),
    )
    after = TrainState(state.step + 1, params, opt_state, stats, carry)
    return after, {**metrics, **judged}


def _gradients(
    params: Params,
    batch: Arrays,
    key: Key[Array, ""],
    loss: LossFunction,
    weights: Scalars,
    micro_batches: int,
    carry: Any,
) -> tuple[Params, tuple[dict[str, Array], Any]]:
    """The gradients of the summed losses; the losses by name and the next carry."""
    carried = (carry,) if carry else ()

    def part(params: Params, index: Int[Array, ""] | int, rows: Arrays) -> tuple:
        sums = loss(params, rows, jax.random.fold_in(key, index), *carried)
        sums, after = sums if carried else (sums, ())
        losses = {name: total / weights[name] for name, total in sums.items()}
        return sum(losses.values()), (losses, after)

    gradient = jax.grad(part, has_aux=True)
    if micro_batches == 1:
        return gradient(params, 0, batch)
    parts = _cut(batch, micro_batches)
    return _added(functools.partial(gradient, params), parts)


def _gradients_of_vectors(
    params: Params,
    batch: Arrays,
    key: Key[Array, ""],
    vectors: VectorFunction,
    loss: LossFunction,
    weights: Scalars,
    micro_batches: int,
) -> tuple[Params, dict[str, Array]]:
    """The gradients of losses that compare the rows of the whole batch, and the losses.

    Computes the vectors part by part, then the loss of all of them, then each part
    again with its vectors' gradients (Gao et al. 2021, gradient caching).
    """

    def of_part(params: Params, index: Int[Array, ""] | int, rows: Arrays) -> Arrays:
        return vectors(params, rows, jax.random.fold_in(key, index))

    def total(found: Arrays) -> tuple:
        sums = loss(found, batch)
        losses = {name: value / weights[name] for name, value in sums.items()}
        return sum(losses.values()), losses

    def step(_: None, index_and_rows: tuple) -> tuple[None, Arrays]:
        return None, of_part(params, *index_and_rows)

    def gradient(index: Int[Array, ""], part: tuple[Arrays, Arrays]) -> Params:
        rows, cotangents = part
        return jax.vjp(lambda p: of_part(p, index, rows), params)[1](cotangents)[0]

    if micro_batches == 1:
        whole = jax.grad(lambda p: total(of_part(p, 0, batch)), has_aux=True)
        return whole(params)
    parts = _cut(batch, micro_batches)
    _, found = jax.lax.scan(step, None, (jnp.arange(micro_batches), parts))
    joined = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), found)
    cotangents, losses = jax.grad(total, has_aux=True)(joined)
    return _added(gradient, (parts, _cut(cotangents, micro_batches))), losses


def _added(function: Callable[..., Any], parts: Any) -> Any:
    """The sum of `function(index, part)` over parts [parts, rows, ...]."""

    def add(carry: Any, index_and_rows: tuple) -> tuple:
        return jax.tree.map(jnp.add, carry, function(*index_and_rows)), None

    first = jax.tree.map(lambda rows: rows[0], parts)
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, 0, first))
    count = len(jax.tree.leaves(parts)[0])
    return jax.lax.scan(add, zeros, (jnp.arange(count), parts))[0]


def _cut(batch: Arrays, parts: int) -> dict[str, Array]:
    """[batch, ...] -> [parts, batch / parts, ...], each part on every device.

    Part i takes rows i, i + parts, ...: each device cuts the rows it already has.
    """

    def cut(x: Array) -> Array:
        return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)

    return {name: cut(rows) for name, rows in batch.items()}
