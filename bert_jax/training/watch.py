"""`train.watch`: further numbers for the log, each N steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from bert_jax import registry
from bert_jax.errors import UserError
from bert_jax.training.optimizer import layer_axes
from bert_jax.training.seeds import Seeds
from bert_jax.types import Params, Scalars

_TAKEN = ("step", "split", "time")  # by a line of metrics.jsonl


def _nothing(*_: Any) -> dict[str, Any]:
    return {}


class Watcher(NamedTuple):
    """Numbers for the log, an entry of WATCHERS.

    Attributes:
      in_step: Function of (parameters before the step, gradients, updates) of those
        that learn. Returns scalars by name. It is compiled within the step.
      after_step: Function of (state, batch, metrics) after the step. Returns numbers by
        name. With several seeds all arrays have a first axis for them, the numbers too.
    """

    in_step: Callable[[Params, Params, Params], Scalars] = _nothing
    after_step: Callable[[Any, Any, Mapping[str, Array]], Mapping[str, Any]] = _nothing


def norms(params: Params, grads: Params, updates: Params) -> Scalars:
    """Returns the norm of each parameter, of its gradient and of its update, by path.

    With `model.scan_layers` each layer has its own, named as without it.
    """
    found: dict[str, Array] = {}
    trees = {"param_norm": params, "grad_norm": grads, "update_norm": updates}
    for kind, tree in trees.items():
        for keys, array in jax.tree.leaves_with_path(tree):
            name = jax.tree_util.keystr(keys, simple=True, separator="/")
            axes = layer_axes(name, array.ndim)
            norm = jnp.sqrt(jnp.sum(jnp.square(array.astype(jnp.float32)), axis=axes))
            if norm.ndim:
                for layer, value in enumerate(norm):
                    one = name.replace("encoder/layers/", f"encoder/layer_{layer}/")
                    found[f"{kind}/{one}"] = value
            else:
                found[f"{kind}/{name}"] = norm
    return found


NORMS = Watcher(in_step=norms)


def watch_step(
    watchers: Sequence[Watcher], params: Params, grads: Params, updates: Params
) -> Scalars:
    """Returns the numbers of all watchers' `in_step`, which has the arguments."""
    found: Scalars = {}
    for watcher in watchers:
        found = join_watched(found, watcher.in_step(params, grads, updates))
    return found


def join_watched(
    found: Mapping[str, Any], more: Mapping[str, Any], seeds: Seeds | None = None
) -> dict[str, Any]:
    """Returns the numbers of two watchers, and checks the second's.

    Args:
      seeds: Seeds of the run, for each of which an array has a number. None means that
        there is one.

    Raises:
      UserError: A name is taken, or a value is not a number.
    """
    shapes = {()} if seeds is None else {(), seeds.array.shape}
    for name, value in more.items():
        if name in found or name in _TAKEN:
            raise UserError(
                f"config.train.watchers: two numbers are named {name!r}; rename one"
            )
        if jnp.shape(value) not in shapes:
            raise UserError(
                f"config.train.watchers: {name} has the shape {jnp.shape(value)}; a "
                "watcher returns numbers"
            )
    if seeds is not None:
        more = {n: jnp.broadcast_to(x, seeds.array.shape) for n, x in more.items()}
    return {**found, **more}


def find_watchers(names: Sequence[str]) -> list[Watcher]:
    """Returns the entries that `train.watchers` names."""
    return [registry.WATCHERS.lookup(name) for name in names]
